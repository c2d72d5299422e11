"""A made-up engine with hooks: requests come, take blocks, wait, are preempted and end; what it reports is consistent.

It stands in where a real scheduler would be too slow (days) or can't be made to fail; ``simulated.py`` has real ones.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from agent.state import EngineState, HookState, MemberState, PoolState
from bench.corpus.clock import Tick
from bench.corpus.load import poisson
from bench.corpus.requests import BLOCK_TOKENS, Request, Tenant
from engine_hooks.core.buckets import PROMPT_TOKENS
from engine_hooks.detail import (
    AllocationRow,
    DelayedRow,
    Detail,
    GroupRow,
    Histogram,
    LeakRow,
    PinRow,
    SpeculationRow,
    TenantRow,
    WaitingRow,
    WorkRow,
)

_TAKE_BOUNDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_WAIT_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0)
_LIFE_BOUNDS = (1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0)
_LIVED_SECONDS = 4.0
_TOTALS = ("taken", "given", "prefilled", "scheduled", "rebuilt_preempted", "rebuilt_evicted", "rebuild_seconds")
_OF_TENANTS = ("requests", "prompt_tokens", "generated")
_SESSION_BOUNDS = (10.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 7_200.0)


class Counts:
    """A histogram that only grows."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float, number: int = 1) -> None:
        """Count ``value``, ``number`` times."""
        place = next((n for n, bound in enumerate(self._bounds) if value <= bound), len(self._bounds))
        self._counts[place] += number
        self._sum += value * number

    def row(self) -> Histogram:
        """Return it as the wire has it."""
        return Histogram(bounds=self._bounds, counts=tuple(self._counts), sum=self._sum)


@dataclass(slots=True)
class Speed:
    """Tokens a second: ``prefill`` in all, ``decode`` of one request alone; ``batch``: how many more halve that."""

    prefill: float = 12_000.0
    decode: float = 60.0
    batch: float = 120.0


class Engine:
    """One engine. What goes wrong with it is set from outside: ``orphans``, ``delayed``, ``pins``, ``stalled_by``."""

    def __init__(
        self,
        rng: Random,
        tenants: Sequence[Tenant],
        *,
        name: str = "m",
        capacity: int = 20_000,
        most_running: int = 256,
        speed: Speed | None = None,
        block_bytes: int = 2 << 20,
        speculative: bool = False,
    ) -> None:
        self.rng = Random(rng.getrandbits(64))
        self.name, self.tenants, self.capacity = name, list(tenants), capacity
        self.most_running, self.speed, self.block_bytes = most_running, speed or Speed(), block_bytes
        self.instance = f"{self.rng.getrandbits(48):x}"
        self.members: tuple[MemberState, ...] = ()
        self.pid = self.rng.randrange(2_000, 60_000)
        self.speculative = speculative
        self.extra_refusals = 0.0  # a second, that memory refuses for a reason of its own
        # What all requests will hold in the end, as a share of the pool, at which a router sends the next elsewhere.
        self.most_held = math.inf
        self.patience: float | None = None  # seconds after which a client gives up and tries again
        self._begin()

    def _begin(self) -> None:
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.cached = 0
        self.orphans: list[tuple[LeakRow, float]] = []  # with the moment at which they were lost
        self.over_freed = 0
        self.delayed: tuple[DelayedRow, ...] | None = None
        self.pins: tuple[PinRow, ...] | None = None
        self.stalled_by = ""
        self.paused = False
        self.frozen = False
        self.unfit = 0  # requests at the head that never fit
        self.stalled = 0.0
        self.steps = self.refused = self.preempted = self.taken = self.given = 0
        self.consecutive = self.most_consecutive = self.over_three = 0
        self.prefilled = self.scheduled = self.rebuilt_preempted = self.rebuilt_evicted = 0.0
        self.rebuild_seconds = 0.0
        self.started_at = 0.0
        self.sequence = 0
        self.residue = self.interruptions = self.stuck = 0
        self.rounds = 0
        self._takes, self._waits, self._lives = Counts(_TAKE_BOUNDS), Counts(_WAIT_BOUNDS), Counts(_LIFE_BOUNDS)
        self._prompts = Counts(PROMPT_TOKENS)
        self._sessions = {tenant.name: Counts(_SESSION_BOUNDS) for tenant in self.tenants}
        self.session_seconds = 45.0
        self.evicted_share = 0.0  # of what is prefilled, computed again because others evicted it

    def restart(self, at: float) -> None:
        """Begin anew as another instance, at ``at`` (Unix seconds)."""
        self._begin()
        self.instance = f"{self.rng.getrandbits(48):x}"
        self.pid += 17
        self.started_at = at
        for tenant in self.tenants:
            tenant.requests = tenant.prompt_tokens = tenant.preempted = 0
            tenant.generated, tenant.ended = 0.0, {}

    @property
    def used(self) -> int:
        """Blocks of running requests."""
        return sum(request.blocks for request in self.running)

    @property
    def kept(self) -> int:
        """Blocks that no running request has and that are not free."""
        late = sum(row.blocks for row in self.delayed or ())
        return sum(row.blocks for row, _ in self.orphans) + late + sum(row.references for row in self.pins or ())

    def abort_all(self) -> int:
        """End everything that runs or waits, as when the front end goes away; return how many."""
        number = len(self.running) + len(self.waiting)
        while self.running:
            self.drop(0)
        for request in self.waiting:
            self._end(request, "aborted_front_end")
        self.waiting.clear()
        return number

    def drop(self, number: int) -> None:
        """Let the client of the running request ``number`` go away; its blocks come back."""
        request = self.running.pop(number)
        self._free(request)
        self._end(request, "aborted_front_end")

    def put_back(self) -> None:
        """Preempt the newest running request."""
        victim = self.running.pop()
        self._free(victim)
        victim.computed = victim.done
        victim.reach(0.0)
        victim.tenant.preempted += 1
        self.preempted += 1
        self.interruptions += self.speculative
        self.waiting.appendleft(victim)

    def step(self, tick: Tick) -> None:
        """Let ``tick.elapsed`` seconds pass."""
        if self.frozen:
            return
        # Of a long step only the end is lived through, and counted as often as it fits into the whole.
        elapsed = min(tick.elapsed, _LIVED_SECONDS)
        before = self._totals() if tick.elapsed > 1.5 * elapsed else None
        self._live(tick, elapsed)
        if before is not None:
            self._stretch(before, min(tick.elapsed, 120.0) / elapsed - 1)

    def _live(self, tick: Tick, elapsed: float) -> None:
        room = self.most_held * self.capacity - sum(each.whole for each in (*self.running, *self.waiting))
        for tenant in self.tenants:
            for _ in range(poisson(self.rng, tenant.rate(tick.t) * elapsed)):
                request = tenant.draw(self.rng)
                room -= request.whole
                if room < 0:
                    continue
                request.patience = self.patience
                tenant.requests += 1
                self.waiting.append(request)
        while len(self.waiting) > 2_000:
            self._end(self.waiting.popleft(), "error")
        if self.stalled_by or self.paused:
            busy = self.running or self.waiting or self.unfit
            self.stalled = self.stalled + elapsed if busy and not self.paused else 0.0
            return
        self.stalled = 0.0
        slices = 2 if elapsed > 2 else 1
        for _ in range(slices):
            # In this order what is freed is taken again at once where somebody waits for it, as in steps of 30 ms.
            self._advance(elapsed / slices)
            self._admit(elapsed / slices)
        if self.extra_refusals:
            self._refuse(poisson(self.rng, self.extra_refusals * elapsed))
        for request in self.waiting:
            request.waited += elapsed
        self.steps += max(1, int(elapsed * 25))

    def _totals(self) -> list[float]:
        own = [getattr(self, name) for name in _TOTALS]
        return own + [getattr(tenant, name) for tenant in self.tenants for name in _OF_TENANTS]

    def _stretch(self, before: list[float], times: float) -> None:
        for (owner, name), was, now in zip(self._places(), before, self._totals(), strict=True):
            more = (now - was) * times
            setattr(owner, name, now + (int(more) if isinstance(now, int) else more))

    def _places(self) -> list[tuple[object, str]]:
        return [(self, name) for name in _TOTALS] + [(tenant, name) for tenant in self.tenants for name in _OF_TENANTS]

    def _refuse(self, number: int) -> None:
        self.refused += number
        self.consecutive += number
        self.most_consecutive = max(self.most_consecutive, self.consecutive)

    def _admit(self, elapsed: float) -> None:
        if self.patience is not None:
            for request in [each for each in self.waiting if each.waited > self.patience]:
                self.waiting.remove(request)
                self._end(request, "aborted_front_end")
        free = self.capacity - self.used - self.kept
        budget = self.speed.prefill * elapsed
        while self.waiting and len(self.running) < self.most_running and budget > 0:
            request = self.waiting[0]
            tokens = max(float(request.prompt), request.computed)
            need = -(-int(tokens) // BLOCK_TOKENS) + 1
            if need > free - self.capacity // 100:
                request.refused += 1
                if request.refused == 4:
                    self.over_three += 1
                self._refuse(1)
                break
            self.waiting.popleft()
            self.consecutive = 0
            again = request.computed
            self.rebuilt_preempted += again
            fresh = request.prompt * (1 - request.tenant.reuse)
            lost = self.evicted_share * request.prompt
            self.rebuilt_evicted += lost
            self.prefilled += fresh + lost
            self.scheduled += fresh + lost + again
            self.rebuild_seconds += (again + lost) / self.speed.prefill
            if not request.computed:
                request.tenant.prompt_tokens += request.prompt
                self._prompts.add(request.prompt)
            request.reach(tokens)
            free -= need
            budget -= fresh + lost + again
            self.taken += need
            self._takes.add(4e-6, 1)
            if request.refused:
                self._waits.add(request.waited)
            request.refused = 0
            self.running.append(request)

    def _advance(self, elapsed: float) -> None:
        each = self.speed.decode * elapsed / (1 + len(self.running) / self.speed.batch)
        going: list[Request] = []
        used = self.kept
        for request in self.running:
            whole = request.prompt + request.output
            got = min(each, whole - request.done)
            self.taken += request.reach(request.done + got)
            request.ran += elapsed
            request.tenant.generated += got
            self.scheduled += got
            if request.done < whole:
                going.append(request)
                used += request.blocks
                continue
            self._free(request)
            self._lives.add(request.ran)
            self._sessions[request.tenant.name].add(self.session_seconds * self.rng.lognormvariate(0, 0.6))
            self._end(request, "finished")
        self.running = going
        if self.speculative and going:
            self.rounds += int(len(going) * elapsed * 10)
        while going and used > self.capacity:
            used -= going[-1].blocks
            self.put_back()

    def _free(self, request: Request) -> None:
        self.given += request.blocks
        self.cached = min(self.capacity, self.cached + request.blocks)

    def _end(self, request: Request, ending: str) -> None:
        ended = request.tenant.ended
        ended[ending] = ended.get(ending, 0) + 1

    def state(self, tick: Tick, *, detailed: bool = True, phase: str = "live", reason: str = "") -> EngineState:
        """Return what the agent knows of it."""
        self.sequence += 1
        live = phase == "live"
        noise = self.rng.randrange(0, 4)
        held = min(self.capacity, self.used + self.kept)
        self.cached = min(self.cached, self.capacity - held)
        orphaned = sum(row.blocks for row, _ in self.orphans)
        pool = PoolState(
            capacity=self.capacity,
            held=held,
            held_min=max(0, held - noise),
            held_max=min(self.capacity, held + noise),
            cached_idle=self.cached,
            empty=self.capacity - held - self.cached,
            orphaned=orphaned,
            over_freed=self.over_freed,
            exact=True,
            audits=self.sequence,
            ledger_drift=0,
            block_tokens=BLOCK_TOKENS,
            block_bytes=self.block_bytes,
            delayed=sum(row.blocks for row in self.delayed or ()),
            deferred=0,
            pinned=sum(row.references for row in self.pins or () if not row.known),
        )
        return EngineState(
            engine=self.name,
            engine_id=f"id-{self.name}",
            instance=self.instance,
            host="node",
            pid=self.pid,
            own_pid=self.pid,
            index=0,
            rank=0,
            started_at=self.started_at,
            engine_version="0.11.0",
            hooks_version="0.1.0",
            phase="live" if live else "silent" if phase == "silent" else "lost",
            reason=reason,
            link_up=phase != "lost",
            report_age_seconds=self.rng.uniform(0.0, 1.0) if live else 12.0,
            report_sequence=self.sequence if live else None,
            steps=self.steps if live else None,
            running=len(self.running) if live else None,
            waiting=len(self.waiting) + self.unfit if live else None,
            pool=pool if live else None,
            audit_supported=True,
            audit_reason="",
            hooks=HookState(
                errors={}, off={}, dropped_frames=0, hook_seconds=self.steps * 5e-5, step_seconds=self.steps * 0.03
            )
            if live
            else None,
            detail=self._detail(tick) if live and detailed else None,
            workers_expected=len([one for one in self.members if one.role == "worker"]) or None,
            frontends_expected=1,
            members=self.members,
        )

    def _detail(self, tick: Tick) -> Detail:
        leaks = tuple(msgspec.structs.replace(row, age_seconds=tick.t - lost) for row, lost in self.orphans[:60])
        refused = [request for request in self.waiting if request.refused]
        reasons = {"queued": len(self.waiting) - len(refused), "memory": len(refused) + self.unfit}
        if self.stalled_by and not self.unfit:
            reasons = {self.stalled_by: len(self.waiting)}
        if self.paused:
            reasons = {"paused": len(self.waiting)}
        return Detail(
            monotonic=tick.monotonic,
            groups=(
                GroupRow(
                    group=0,
                    kind="full_attention",
                    pool="gpu",
                    layers=32,
                    block_tokens=BLOCK_TOKENS,
                    block_bytes=self.block_bytes,
                    references=self.used,
                ),
            ),
            leaks=leaks,
            delayed=self.delayed,
            pins=self.pins,
            tenants=self._tenants(),
            allocation=AllocationRow(
                block_seconds=self._takes.row(),
                wait_seconds=self._waits.row(),
                blocks_taken_total=self.taken,
                blocks_given_back_total=self.given,
                refused_total=self.refused,
                preempted_total=self.preempted,
                consecutive_refusals=self.consecutive,
                most_consecutive_refusals=self.most_consecutive,
                most_retries=max((request.refused for request in refused), default=0),
                over_three_retries_total=self.over_three,
                waiting_refused=len(refused),
                oldest_refused_seconds=max((request.waited for request in refused), default=None),
            ),
            work=WorkRow(
                scheduled_tokens_total=int(self.scheduled),
                prefill_tokens_total=int(self.prefilled + self.rebuilt_preempted),
                rebuilt_preempted_total=int(self.rebuilt_preempted),
                rebuilt_evicted_total=int(self.rebuilt_evicted),
                rebuild_seconds_total=self.rebuild_seconds,
                request_seconds=self._lives.row(),
                prompt_tokens=self._prompts.row(),
                tail_slots=len(self.running) * BLOCK_TOKENS // 2,
                steepest_slope=3.5 if self.running else None,
            ),
            speculation=self._speculation(),
            waiting=WaitingRow(
                reasons={reason: number for reason, number in reasons.items() if number},
                idle_steps=int(self.stalled * 20),
                stalled_seconds=self.stalled if self.stalled > 0 else None,
                stalled_by="paused" if self.paused else self.stalled_by if self.stalled > 0 else "",
            ),
        )

    def _speculation(self) -> SpeculationRow | None:
        if not self.speculative:
            return None
        return SpeculationRow(
            drafted_tokens_total=self.rounds * 3,
            accepted_tokens_total=self.rounds * 2,
            rounds_total=self.rounds,
            interruptions_total=self.interruptions,
            residue_blocks_total=self.residue,
            states={"drafting": len(self.running)},
            stuck=self.stuck,
            stuck_after_seconds=30.0,
        )

    def _tenants(self) -> tuple[TenantRow, ...]:
        running, held, waiting = Counter[str](), Counter[str](), Counter[str]()
        for request in self.running:
            running[request.tenant.name] += 1
            held[request.tenant.name] += request.blocks
        waiting.update(request.tenant.name for request in self.waiting)
        return tuple(
            self._tenant(tenant, running[tenant.name], waiting[tenant.name], held[tenant.name])
            for tenant in self.tenants
        )

    def _tenant(self, tenant: Tenant, running: int, waiting: int, held: int) -> TenantRow:
        sessions = self._sessions[tenant.name].row()
        return TenantRow(
            tenant=tenant.name,
            running=running,
            waiting=waiting,
            held=float(held),
            references=held,
            requests_total=tenant.requests,
            prompt_tokens_total=tenant.prompt_tokens,
            generated_tokens_total=int(tenant.generated),
            preempted_total=tenant.preempted,
            ended_total=dict(tenant.ended),
            sessions=running * 2,
            session_lifetime_seconds=sessions,
            session_idle_seconds=sessions,
            quota_blocks=tenant.quota_blocks,
            held_age_seconds=0.5,
        )
