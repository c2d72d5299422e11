"""GPUs: how full, and what of it grows that neither torch nor a KV pool accounts for."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from agent.policy.types import Policy
from agent.signals.durations import Above, over
from agent.signals.kept import KeptTrack, Restored
from agent.signals.series import Due
from agent.signals.sustained import Sustained
from agent.signals.trend import Trend
from agent.signals.types import GpuSignals
from agent.sources.device.state import GpuState
from agent.state import AgentState
from agent.waterfall.owners import bare
from agent.waterfall.state import Waterfall

LOOK_SECONDS = 5.0
KV = ("kv_held", "kv_cached_idle", "kv_empty", "kv_unsplit")
KV_FREE = ("kv_cached_idle", "kv_empty")
OTHER = ("context", "untold")
FOREIGN = "other_processes"


def units_of(state: AgentState, *, lost: bool = False) -> Iterator[GpuState]:
    """Yield the GPUs that work, MIG instances in the place of a GPU that is split; ``lost``: those that don't, too."""
    for gpu in state.device.gpus if state.device else ():
        if gpu.up or lost:
            yield from (part for part in gpu.instances if part.up or lost) if gpu.instances else (gpu,)


def by_name(state: AgentState) -> dict[str, GpuState]:
    """Return the GPUs that work by what torch calls them (:func:`agent.waterfall.owners.bare`), which is not the
    driver's name for a MIG instance; by an empty name the only one there is.
    """
    units = list(units_of(state))
    found = {bare(name): unit for unit in units for name in (unit.uuid, *unit.compute_instances)}
    found.pop("", None)
    return found | {"": units[0]} if len(units) == 1 else found


class _Parts(NamedTuple):
    kv: int | None
    other: int | None
    foreign: int | None


class _Gpu:
    def __init__(self, name: str, restored: Restored | None = None) -> None:
        self.used = Trend(f"{name}/used", seconds=10.0, window=300.0, restored=restored)
        self.other = Trend(f"{name}/other", seconds=10.0, window=300.0, restored=restored)
        self.foreign = Trend(f"{name}/foreign", seconds=10.0, window=300.0, restored=restored)
        self.warn, self.page = Above(), Above()
        self.kv_free = Sustained()
        self.since = 0.0
        self.look = Due(LOOK_SECONDS, zlib.crc32(name.encode()) % 5)
        self.parts = _Parts(None, None, None)

    def unseen(self) -> None:
        """End what lasts: nobody knows what is, or was, meanwhile."""
        self.warn.clear()
        self.page.clear()
        self.kv_free.clear()


class GpusTracker:
    """Keeps what the signals of GPUs need of the past; one that is lost begins anew when it is back. ``restored``:
    what an agent before this one had.
    """

    def __init__(self, policy: Policy, restored: Restored | None = None) -> None:
        self._policy = policy
        self._restored = restored
        self._gpus: dict[str, _Gpu] = {}

    def adopt(self, policy: Policy) -> None:
        """Go by another policy from now on."""
        self._policy = policy

    def take(self, now: float, state: AgentState, gap: bool) -> tuple[GpuSignals, ...]:
        """Return the signals of each GPU that works."""
        falls = {each.gpu: each for each in state.waterfalls}
        units = {unit.gpu: unit for unit in units_of(state)}
        if state.device is not None or gap:
            self._gpus = {name: gpu for name, gpu in self._gpus.items() if name in units}
        else:  # how full they are while nobody reads them, nobody knows
            for gpu in self._gpus.values():
                gpu.unseen()
        return tuple(self._of(now, unit, falls.get(name), gap) for name, unit in units.items())

    def kept(self) -> Iterator[tuple[str, KeptTrack]]:
        """Yield what is to be kept over a restart of the agent, by name."""
        trends = (trend for gpu in self._gpus.values() for trend in (gpu.used, gpu.other, gpu.foreign))
        yield from filter(None, (trend.kept() for trend in trends))

    def _of(self, now: float, unit: GpuState, fall: Waterfall | None, gap: bool) -> GpuSignals:
        gpu = self._gpus.get(unit.gpu)
        if gpu is None:
            gpu = self._gpus[unit.gpu] = _Gpu(unit.gpu, self._restored)
            gpu.since = now
        if gap:
            gpu.unseen()
        memory, use = unit.memory, self._policy.use
        whole = memory.total if memory is not None else None
        ratio = (memory.total - memory.free) / memory.total if memory is not None and memory.total > 0 else None
        if gpu.look.now(now) or gap:
            gpu.parts = parts = _parts(fall)
            instance = (unit.uuid, whole)
            gpu.used.take(now, memory.used if memory is not None else None, whole, instance)
            gpu.other.take(now, parts.other, whole, instance)
            gpu.foreign.take(now, parts.foreign, whole, instance)
        parts = gpu.parts
        return GpuSignals(
            gpu=unit.gpu,
            use_ratio=ratio,
            above_warn_seconds=gpu.warn.take(now, over(ratio, use.warn_ratio)),
            above_page_seconds=gpu.page.take(now, over(ratio, use.page_ratio)),
            kv_share_ratio=None if parts.kv is None or not whole else parts.kv / whole,
            growth=gpu.used.growth,
            slow=gpu.used.slow,
            other_bytes=parts.other,
            other_growth=gpu.other.growth,
            other_slow=gpu.other.slow,
            foreign_bytes=parts.foreign,
            foreign_growth=gpu.foreign.growth,
            foreign_slow=gpu.foreign.slow,
            free_bytes=memory.free if memory is not None else None,
            kv_free_mean_bytes=gpu.kv_free.take(now, _kv_free(fall)),
            up_seconds=now - gpu.since,
        )


def _kv_free(fall: Waterfall | None) -> int | None:
    """Return the bytes of KV pools that nothing holds; None where the waterfall claims no sum."""
    if fall is None or fall.total_bytes is None:
        return None
    return sum(part.bytes for part in fall.parts if part.part in KV_FREE)


def _parts(fall: Waterfall | None) -> _Parts:
    """Return the sums of the waterfall; None where it claims no sum, or nobody tells whose the memory is."""
    if fall is None or fall.total_bytes is None:
        return _Parts(None, None, None)
    kv = other = foreign = 0
    for part in fall.parts:
        if part.part in KV:
            kv += part.bytes
        elif part.part in OTHER:
            other += part.bytes
        elif part.part == FOREIGN:
            foreign += part.bytes
    return _Parts(kv, other + max(0, fall.unattributed_bytes or 0), foreign)
