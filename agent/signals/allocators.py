"""torch's allocator in each process, on each device that it uses."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from agent.signals.counters import MINUTE, Kept, came, per_minute
from agent.signals.gpus import by_name
from agent.signals.kept import KeptTrack, Restored
from agent.signals.series import Due
from agent.signals.trend import Trend
from agent.signals.types import AllocatorSignals
from agent.state import AgentState, MemberState
from agent.waterfall.owners import bare
from engine_hooks.allocator import AllocatorRow, DeviceRow, SegmentsRow

LOOK_SECONDS = 5.0
HOUR = 3600.0
FLUSHED = 0.5  # of what was free in torch's hands
LEAST_FLUSHED = 64 * 1024 * 1024

Key = tuple[str, str, str, int, int]  # engine, process, role, rank, torch's device


class _Size(NamedTuple):
    reserved: int | None
    allocated: int | None


class _Told(NamedTuple):
    key: Key
    member: MemberState
    row: AllocatorRow
    device: DeviceRow
    gpu: str
    whole: int | None


class _Allocator:
    def __init__(self, name: str, restored: Restored | None = None) -> None:
        self.allocated = Trend(name, restored=restored)
        self.instance = ""
        self.minute: Kept[DeviceRow] = Kept(5.0, MINUTE)
        self.ooms: deque[float] = deque(maxlen=64)
        self.before: tuple[int | None, _Size] | None = None
        self.flushed_at: float | None = None
        self.last = 0.0


class AllocatorsTracker:
    """Keeps what the signals of allocators need of the past; ``restored``: what an agent before this one had."""

    def __init__(self, restored: Restored | None = None) -> None:
        self._restored = restored
        self._allocators: dict[Key, _Allocator] = {}
        self._look = Due(LOOK_SECONDS, 3.0)
        self._signals: tuple[AllocatorSignals, ...] = ()

    def take(self, now: float, state: AgentState, gap: bool) -> tuple[AllocatorSignals, ...]:
        """Return the signals of each process and device that tells of its allocator, anew each five seconds."""
        if not self._look.now(now) and not gap:
            return self._signals
        units = by_name(state)
        signals = []
        for engine, member in _members(state):
            allocator = member.allocator
            if not member.up or allocator is None or allocator.row.reason:
                continue
            for row in allocator.row.devices:
                key = (engine, member.process, member.role, member.rank, row.device)
                kept = self._kept(now, key, member, gap)
                unit = units.get(bare(row.uuid))
                whole = unit.memory.total if unit is not None and unit.memory is not None else None
                told = _Told(key, member, allocator.row, row, unit.gpu if unit is not None else "", whole)
                signals.append(_of(now, kept, told))
        self._allocators = {key: each for key, each in self._allocators.items() if now - each.last < 600.0}
        self._signals = tuple(signals)
        return self._signals

    def kept(self) -> Iterator[tuple[str, KeptTrack]]:
        """Yield what is to be kept over a restart of the agent, by name."""
        yield from filter(None, (each.allocated.kept() for each in self._allocators.values()))

    def _kept(self, now: float, key: Key, member: MemberState, gap: bool) -> _Allocator:
        kept = self._allocators.get(key)
        if kept is None:
            kept = self._allocators[key] = _Allocator("/".join(map(str, key)), self._restored)
        instance = member.instance or f"{member.pid}/{member.started_at}"
        if gap or instance != kept.instance:
            kept.minute.clear()
            kept.before = kept.flushed_at = None
            kept.ooms.clear()
        kept.last, kept.instance = now, instance
        return kept


def _of(now: float, kept: _Allocator, told: _Told) -> AllocatorSignals:
    member, row, whole = told.member, told.device, told.whole
    size = _mapped(told.row, row)
    kept.allocated.take(now, size.allocated, whole, (kept.instance, whole))
    _count(now, kept, row, size)
    minute = kept.minute.ago(now, MINUTE)
    retries = None if minute is None else came(row.retries_total, minute[1].retries_total)
    segments = _segments(told.row, row)
    slack = None if size.reserved is None or size.allocated is None else max(0, size.reserved - size.allocated)
    return AllocatorSignals(
        engine=told.key[0],
        process=member.process,
        role=member.role,
        rank=member.rank,
        pid=member.pid,
        gpu=told.gpu,
        age_seconds=kept.allocated.seconds(now),
        fragmentation=_fragmentation(segments),
        free_bytes=segments.free_bytes if segments else None,
        largest_free_bytes=segments.largest_free_bytes if segments else None,
        overcommit=size.reserved / size.allocated if size.reserved is not None and size.allocated else None,
        slack_bytes=slack,
        allocated_ratio=size.allocated / whole if size.allocated is not None and whole else None,
        growth=kept.allocated.growth,
        slow=kept.allocated.slow,
        retries_per_minute=None if minute is None else per_minute(retries, max(MINUTE, minute[0])),
        ooms_per_hour=None if row.ooms_total is None else float(len(kept.ooms)),
        flushed=kept.flushed_at is not None and now - kept.flushed_at <= MINUTE,
    )


def _count(now: float, kept: _Allocator, row: DeviceRow, size: _Size) -> None:
    kept.minute.add(now, row)
    if kept.before is not None:
        ooms, (reserved, allocated) = kept.before
        more = came(row.ooms_total, ooms) or 0.0
        kept.ooms.extend([now] * min(int(more), 64))
        if reserved is not None and allocated is not None and size.reserved is not None:
            free = reserved - allocated
            if free >= LEAST_FLUSHED and reserved - size.reserved >= FLUSHED * free:
                kept.flushed_at = now
    while kept.ooms and now - kept.ooms[0] > HOUR:
        kept.ooms.popleft()
    kept.before = (row.ooms_total, size)


def _members(state: AgentState) -> Iterator[tuple[str, MemberState]]:
    for engine in state.engines:
        for member in engine.members:
            yield engine.engine, member
    for member in state.processes:
        yield "", member


def _mapped(allocator: AllocatorRow, row: DeviceRow) -> _Size:
    """Return what is reserved and allocated on the device: torch goes on counting what sleep mode has unmapped."""
    asleep = sum(
        max(0, tag.bytes - tag.mapped_bytes)
        for tag in allocator.tags
        if tag.device == row.device and tag.mapped_bytes is not None
    )
    reserved, allocated = row.reserved_bytes, row.allocated_bytes
    return _Size(
        None if reserved is None else max(0, reserved - asleep),
        None if allocated is None else max(0, allocated - asleep),
    )


def _segments(allocator: AllocatorRow, row: DeviceRow) -> SegmentsRow | None:
    devices = allocator.walk.devices if allocator.walk else ()
    return next((each for each in devices if each.device == row.device), None)


def _fragmentation(segments: SegmentsRow | None) -> float | None:
    if segments is None or segments.free_bytes <= 0:
        return None
    return min(1.0, max(0.0, 1 - segments.largest_free_bytes / segments.free_bytes))
