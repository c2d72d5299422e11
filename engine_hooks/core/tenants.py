"""Tenants: what each has asked for, holds, and got, and how its requests ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

from engine_hooks.core.buckets import REQUEST_SECONDS, Buckets
from engine_hooks.core.marks import Marks, marks_of
from engine_hooks.core.observers import Context, UnsupportedError
from engine_hooks.core.sessions import SessionBook, Turn
from engine_hooks.core.shares import SLICE_SECONDS, Share, ShareWalk
from engine_hooks.detail import OTHER, TenantRow
from engine_hooks.names import short_hash

MAX_TENANTS = 32  # with a row of their own
FOLD_SECONDS = 600.0  # a tenant that was away so long makes room: names in metrics stay few over time, too
PORTION = 256  # requests counted in one go
_NEEDED = ("requests", "running", "add_request", "_free_request")


class Tenant:
    """One tenant's account. ``alive``: its requests that the engine knows; ``kept`` of them have ended, but a connector
    still needs their blocks. ``held``, ``held_at``: None until known.
    """

    __slots__ = (
        "alive", "ended", "generated", "held", "held_at", "idles", "kept", "last_seen", "lifetimes", "name", "nulls",
        "preempted", "prompt", "references", "requests", "running", "sessions",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = self.kept = self.running = self.references = 0
        self.last_seen = 0.0
        self.requests = self.prompt = self.generated = self.preempted = self.sessions = self.nulls = 0
        self.ended: Counter[str] = Counter()
        self.held: float | None = None
        self.held_at: float | None = None
        self.lifetimes, self.idles = Buckets(REQUEST_SECONDS), Buckets(REQUEST_SECONDS)

    def take_in(self, gone: Tenant) -> None:
        """Add the totals of a tenant that loses its row."""
        self.requests += gone.requests
        self.prompt += gone.prompt
        self.generated += gone.generated
        self.preempted += gone.preempted
        self.ended.update(gone.ended)
        for mine, theirs in ((self.lifetimes, gone.lifetimes), (self.idles, gone.idles)):
            mine.counts = [a + b for a, b in zip(mine.counts, theirs.counts, strict=True)]
            mine.sum += theirs.sum


class _Living:
    """A request that the engine knows: whose, since when, ``generated`` tokens counted so far, whether it has ended."""

    __slots__ = ("arrived", "ended", "generated", "marks", "tenant")

    def __init__(self, tenant: Tenant, marks: Marks, arrived: float) -> None:
        self.tenant = tenant
        self.marks = marks
        self.arrived = arrived
        self.generated = 0
        self.ended = False


class TenantObserver:
    """Fills ``tenants``. At most 32 have a row; who comes when all are taken is counted in ``other``."""

    HOOK = "tenants"
    SECTION = "tenants"

    def __init__(self, context: Context) -> None:
        for name in _NEEDED:
            if not hasattr(context.scheduler, name):
                raise UnsupportedError(f"{type(context.scheduler).__name__} has no {name}")
        self._scheduler = context.scheduler
        self._view = context.view
        self._clock = context.clock
        self._quotas = context.settings.tenants.map.quotas
        self._tenants: dict[str, Tenant] = {}
        self._other = Tenant(OTHER)
        self._living: dict[str, _Living] = {}
        self._ran: dict[str, _Living] = {}  # those that ran, or got memory to, since they were last counted
        self.sessions = SessionBook()
        self._how_ended = context.how_ended
        self._marks = context.marks
        self._walk = ShareWalk(context.view.managers, self._owner)
        self._walked: set[Tenant] = set()
        self._taps = context.taps
        context.taps.arrived.append(self._arrived)
        context.taps.continued.append(self._next_piece)
        context.taps.admitted.append(self._run)
        context.taps.departed.append(self._departed)
        context.taps.given_back.append(self._forget)
        context.taps.preempted.append(self._preempted)

    # -- events --------------------------------------------------------------------------------------------

    def _arrived(self, request: Any, tokens: int, at: float, _schedules: int, _alone: bool, piece: bool) -> None:
        if piece:
            return
        marks = self._marks[request.request_id] = marks_of(request)
        tenant = self._row_of(marks.tenant, at)
        self._living[request.request_id] = _Living(tenant, marks, at)
        tenant.alive += 1
        tenant.last_seen = at
        tenant.requests += 1
        tenant.prompt += tokens
        if marks.session:
            self.sessions.begin(marks.tenant, marks.session, tenant, at)

    def _next_piece(self, piece: Any, request: Any) -> None:
        """Count the next piece of an input that is streamed: it makes prompt of what was generated before it."""
        self._taps.take_in()
        living = self._living.get(piece.request_id)
        if living is not None and request is not None:
            living.tenant.prompt += piece.num_prompt_tokens
            _count_generated(living, request)

    def _run(self, request_id: str, *_: Any) -> None:
        if (living := self._living.get(request_id)) is not None:
            self._ran[request_id] = living

    def _departed(self, request: Any, from_outside: tuple[Any, ...], at: float, entries: int, gone: bool) -> None:
        living = self._living.get(request.request_id)
        if living is not None and not living.ended:
            living.ended = True
            living.tenant.kept += 1
            tenant, marks = living.tenant, living.marks
            tenant.last_seen = at
            tenant.ended[self._how_ended.of(request, from_outside)] += 1
            _count_generated(living, request)
            if marks.session:
                turn = Turn(living.arrived, request.num_tokens, entries, short_hash(request.request_id))
                self.sessions.end(marks.tenant, marks.session, turn, at)
        if gone:
            self._forget(request.request_id)

    def _preempted(self, request: Any) -> None:
        self._taps.later((self._put_back,), request.request_id)

    def _put_back(self, request_id: str) -> None:
        living = self._living.get(request_id)
        if living is not None:
            living.tenant.preempted += 1

    def _forget(self, request_id: str, *_: Any) -> None:
        living = self._living.pop(request_id, None)
        self._marks.pop(request_id, None)
        self._ran.pop(request_id, None)
        if living is not None:
            living.tenant.alive -= 1
            living.tenant.kept -= living.ended

    # -- rows ----------------------------------------------------------------------------------------------

    def _row_of(self, name: str, now: float) -> Tenant:
        """Return the account of tenant ``name``: its own, or ``other`` while no place is free."""
        tenant = self._tenants.get(name)
        if tenant is not None or name == OTHER:
            return tenant or self._other
        if len(self._tenants) >= MAX_TENANTS:
            gone = min(self._foldable(name, now), key=lambda t: t.last_seen, default=None)
            if gone is None:
                return self._other
            del self._tenants[gone.name]
            self._other.take_in(gone)
            self.sessions.hand_over(gone, self._other)
        tenant = self._tenants[name] = Tenant(name)
        return tenant

    def _foldable(self, newcomer: str, now: float) -> Iterator[Tenant]:
        """Tenants that may lose their place. One of the map need not wait for that of one that nobody named."""
        for tenant in self._tenants.values():
            if not tenant.alive:
                away = now - tenant.last_seen >= FOLD_SECONDS
                if away or (newcomer in self._quotas and tenant.name not in self._quotas):
                    yield tenant

    def section(self, now: float) -> Generator[None, None, tuple[TenantRow, ...]]:
        """Return all tenants' rows at ``now``; O(requests that hold blocks), a slice of the walk through their tables.

        Requests that wait may be ten times as many: they are not looked at. Of what comes and goes while it yields,
        some is counted and some is not.
        """
        self._taps.take_in()
        self.sessions.expire(now)
        self._count_shares(now)
        yield from self._count_living()
        others = [self._other] if self._other.requests else []
        return tuple(self._row(tenant, now) for tenant in (*self._tenants.values(), *others))

    def _count_living(self) -> Generator[None, None, None]:
        """Count each tenant's requests and table entries as they are now, some hundred at a time."""
        running: Counter[Tenant] = Counter()
        references: Counter[Tenant] = Counter()
        find = self._living.get
        for manager in self._view.managers:
            tables = manager.req_to_blocks
            for some in _portions(list(tables)):
                for request_id in some:
                    if (living := find(request_id)) is not None:
                        references[living.tenant] += len(tables.get(request_id, ()))
                yield
        ran, self._ran = self._ran, {}
        for some in _portions(list(self._scheduler.running)):
            for request in some:
                key = request.request_id
                if (living := find(key)) is not None and not living.ended:
                    running[living.tenant] += 1
                    _count_generated(living, request)
                    self._ran[key] = living
                    ran.pop(key, None)
            yield
        for key, living in ran.items():  # put back, or waiting for its client, since then
            known = self._scheduler.requests.get(key)
            if known is not None and not living.ended:
                _count_generated(living, known)
        for tenant in (*self._tenants.values(), self._other):
            tenant.running, tenant.references = running[tenant], references[tenant]

    def _row(self, tenant: Tenant, now: float) -> TenantRow:
        quota = self._quotas.get(tenant.name)
        return TenantRow(
            tenant=tenant.name,
            running=tenant.running,
            waiting=max(0, tenant.alive - tenant.kept - tenant.running),
            held=tenant.held,
            held_age_seconds=None if tenant.held_at is None else now - tenant.held_at,
            references=max(0, tenant.references - tenant.nulls),
            requests_total=tenant.requests,
            prompt_tokens_total=tenant.prompt,
            generated_tokens_total=tenant.generated,
            preempted_total=tenant.preempted,
            ended_total=dict(tenant.ended),
            sessions=tenant.sessions,
            session_lifetime_seconds=tenant.lifetimes.row(),
            session_idle_seconds=tenant.idles.row(),
            quota_blocks=quota.of(self._view.capacity()) if quota is not None else None,
        )

    # -- shares --------------------------------------------------------------------------------------------

    def _owner(self, request_id: str) -> Tenant | None:
        living = self._living.get(request_id)
        return living.tenant if living is not None else None

    def _count_shares(self, now: float) -> None:
        if not self._walk.under_way:
            self._walked = {*self._tenants.values(), self._other}
        shares = self._walk.advance(SLICE_SECONDS)
        if shares is None:
            return
        nothing = Share()
        for tenant in self._walked:  # one that came later may have been missed: it is counted in the next pass
            share = shares.get(tenant, nothing)
            tenant.held, tenant.nulls, tenant.held_at = share.blocks(), share.nulls, now


def _portions(keys: list[Any]) -> Iterator[list[Any]]:
    return (keys[start : start + PORTION] for start in range(0, len(keys), PORTION))


def _count_generated(living: _Living, request: Any) -> None:
    """Add what ``request`` has generated since last time; a streamed input's next piece begins anew."""
    generated = request.num_output_tokens
    since = generated - living.generated
    living.tenant.generated += since if since >= 0 else generated
    living.generated = generated
