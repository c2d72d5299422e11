"""Whose memory it was, and since when: leaked and kept blocks by tenant, and each tenant's share at its largest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from agent.retained import NO_TENANT, count_of, ending_of, past_lease
from agent.state import AgentState
from engine_hooks.detail import Detail

MOST = 256  # rows of each kind; the rest is counted
LATE = "kept past its lease"
_KINDS = {"over_freed": "over-freed"}  # all others are leaks


@dataclass(slots=True)
class Owned:
    """Blocks of one tenant. ``what``: leaked, over-freed or kept past its lease; ``how``: how their requests ended, or
    for which peer they are kept. ``most`` and ``last``: blocks, at most and at the end; ``since``, ``until``: Unix
    seconds.
    """

    engine: str
    what: str
    tenant: str
    how: str
    since: float
    until: float
    most: int = 0
    last: int = 0


@dataclass(slots=True)
class Share:
    """The most blocks that a tenant held, shared ones divided, and when; ``quota``: None without one."""

    engine: str
    tenant: str
    blocks: float
    at: float
    quota: int | None


class Owners:
    """Takes states one by one. Bounded: ``left_out`` counts what found no place."""

    def __init__(self) -> None:
        self._owned: dict[tuple[str, str, str, str], Owned] = {}
        self._shares: dict[tuple[str, str], Share] = {}
        self.left_out = 0

    def take(self, state: AgentState) -> None:
        """Take the next state."""
        for engine in state.engines:
            if engine.detail is not None:
                self._blame(engine.engine, engine.detail, state)
                self._share(engine.engine, engine.detail, state.at)

    def owned(self) -> list[Owned]:
        """Return whose blocks stayed, the most first."""
        return sorted(self._owned.values(), key=lambda each: (-each.most, each.since))

    def shares(self) -> list[Share]:
        """Return the tenants by the most that they held; without what belongs to none."""
        named = (each for each in self._shares.values() if each.tenant != NO_TENANT)
        return sorted(named, key=lambda each: -each.blocks)

    def _blame(self, engine: str, detail: Detail, state: AgentState) -> None:
        now: defaultdict[tuple[str, str, str, str], int] = defaultdict(int)
        since: dict[tuple[str, str, str, str], float] = {}
        for what, tenant, how, blocks, age in _rows(detail):
            key = engine, what, tenant, how
            now[key] += blocks
            since[key] = min(since.get(key, state.at), state.at - age)
        for key in [key for key in self._owned if key[0] == engine and key not in now]:
            self._owned[key].last = 0
        for key, blocks in now.items():
            owned = self._owned.get(key)
            if owned is None:
                if len(self._owned) >= MOST:
                    self.left_out += 1
                    continue
                owned = self._owned[key] = Owned(*key, since=since[key], until=state.at)
            owned.most, owned.last, owned.until = max(owned.most, blocks), blocks, state.at
            owned.since = min(owned.since, since[key])

    def _share(self, engine: str, detail: Detail, at: float) -> None:
        for row in detail.tenants or ():
            if row.held is None:
                continue
            known = self._shares.get((engine, row.tenant))
            if known is None and len(self._shares) >= MOST:
                self.left_out += 1
            elif known is None or row.held > known.blocks:
                self._shares[engine, row.tenant] = Share(engine, row.tenant, row.held, at, row.quota_blocks)


def _rows(detail: Detail) -> Iterator[tuple[str, str, str, int, float]]:
    """Yield what, whose, how, blocks and age in seconds."""
    for leak in detail.leaks or ():
        yield _KINDS.get(leak.kind, "leaked"), leak.tenant, ending_of(leak.ending), leak.blocks, leak.age_seconds
    for row in detail.delayed or ():
        if past_lease(row):
            tenants = row.tenants or {NO_TENANT: row.blocks}
            for tenant, blocks in tenants.items():
                yield LATE, tenant, f"for peer {row.peer}", blocks, row.oldest_seconds


def said(owned: Owned) -> str:
    """Return one row as a sentence without its time."""
    whose = "" if owned.tenant == NO_TENANT else f" of tenant {owned.tenant}"
    end = "all given back" if not owned.last else f"{owned.last:,} at the end"
    return f"{count_of(owned.most, 'block')}{whose} {owned.what} on {owned.engine} ({owned.how}), {end}"
