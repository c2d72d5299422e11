"""over_budget: a GPU is fuller than what its engines were given leaves room for.

How much an engine may take (gpu_memory_utilization) is not known here. So what is judged is what its head-room was
measured against: whether something else has come and taken it, and whether anything fails for it. A GPU that is full
and serves is not ill: vLLM takes 90 % of it and more before the first request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agent.oom.log import Failure
from agent.signals.types import GpuSignals
from agent.state import AgentState, Tier
from agent.subject import Subject
from agent.units import human_bytes
from agent.verdicts.base import Finding, View
from agent.verdicts.harm import fp8_factor_on
from agent.verdicts.who import failed_on, serves, total_of
from agent.waterfall.state import Waterfall
from engine_hooks.allocator import OOM

RECENT_SECONDS = 600.0
RETRIES = 2.0  # in a minute: one may happen to anybody
NO_ROOM_RATIO = 0.01  # so little free, and others hold more than that: the next allocation fails for their sake
NO_ROOM_SECONDS = 120.0
OTHERS_BYTES = 1024**3
UNATTRIBUTED_RATIO = 0.05
REMEDY_OTHERS = (
    "End or move the other processes, or restart the engine with a lower gpu_memory_utilization. Evicting KV blocks "
    "gives nothing back to the device: the pool is one allocation."
)
REMEDY = (
    "Restart with a lower gpu_memory_utilization, or with fewer sequences or tokens per batch. Evicting KV blocks "
    "gives nothing back to the device: the pool is one allocation."
)


class OverBudget:
    """Fires on use with harm, and on others who have taken the engines' head-room; on use alone in ``textbook``."""

    kind = "over_budget"
    confirm_seconds = 10.0
    clear_seconds = 60.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the GPUs on which more is taken than there is room for."""
        return _all(view)


def _all(view: View) -> Iterator[tuple[Subject, Finding]]:
    for gpu in view.signals.gpus:
        finding = _of(gpu, view)
        if finding is not None:
            yield Subject(scope="gpu", gpu=gpu.gpu), finding


def _of(gpu: GpuSignals, view: View) -> Finding | None:
    use, state = view.policy.use, view.state
    if gpu.use_ratio is None or (
        gpu.use_ratio <= view.policy.fp8_factor * use.warn_ratio
        and (gpu.kv_share_ratio or 0.0) <= view.policy.fp8_factor * use.kv_share_warn_ratio
    ):
        return None
    total = total_of(state, gpu.gpu)
    if total is None:
        return None
    waterfall = next((each for each in state.waterfalls if each.gpu == gpu.gpu), None)
    foreign = _foreign(waterfall)
    harm = _harm(view, gpu.gpu)
    wrong = harm.words
    tier, after = _tier(gpu, view, foreign, total, harm)
    if tier is None:
        return None
    free = gpu.free_bytes
    left = "" if free is None else f", {human_bytes(free)} free"
    text = f"GPU {gpu.gpu} is {gpu.use_ratio:.0%} used{left}"
    text += f", and {wrong}." if wrong else "."
    if foreign >= OTHERS_BYTES:
        text += f" {human_bytes(foreign)} are held by what is not of kvtide's engines."
    share = gpu.kv_share_ratio
    if share is not None and share > view.policy.use.kv_share_warn_ratio:
        text += f" The KV cache has {share:.0%} of the device."
    known: dict[str, float | None] = {
        "use_ratio": gpu.use_ratio,
        "free_bytes": free,
        "foreign_bytes": foreign,
        "kv_share_ratio": share,
        "unattributed_bytes": None if waterfall is None else waterfall.unattributed_bytes,
    }
    evidence = {name: value for name, value in known.items() if value is not None}
    return Finding(
        text, REMEDY_OTHERS if foreign >= OTHERS_BYTES else REMEDY, evidence, tier=tier, confirm_seconds=after
    )


def _tier(gpu: GpuSignals, view: View, foreign: int, total: int, harm: _Harm) -> tuple[Tier | None, float | None]:
    """Return how bad it is, and how long it must hold where that is not the usual time."""
    use = view.policy.use
    factor = fp8_factor_on(view, gpu.gpu)
    ratio, share = gpu.use_ratio or 0.0, gpu.kv_share_ratio or 0.0
    # With FP8 the thresholds are lower than those that the signal's durations are of.
    full = ratio > factor * use.page_ratio and (factor < 1 or gpu.above_page_seconds >= use.page_seconds)
    much = ratio > factor * use.warn_ratio and (factor < 1 or gpu.above_warn_seconds >= use.warn_seconds)
    if view.policy.profile == "textbook":
        if full or share > factor * use.kv_share_page_ratio:
            return "page", use.page_seconds if factor < 1 else 0.0
        seconds = use.warn_seconds if factor < 1 else 0.0
        return ("warn", seconds) if much or share > factor * use.kv_share_warn_ratio else (None, None)
    if harm.tier is not None and (full or much):
        return (harm.tier if full else "warn"), None
    free = gpu.free_bytes
    taken = free is not None and free < NO_ROOM_RATIO * total and foreign >= OTHERS_BYTES and foreign > free
    if taken and serves(view, gpu.gpu):
        return "warn", NO_ROOM_SECONDS
    return None, None


def _foreign(waterfall: Waterfall | None) -> int:
    """What processes hold that don't report, and what nobody is named for beyond the waterfall's own error."""
    if waterfall is None:
        return 0
    named = sum(part.bytes for part in waterfall.parts if part.part == "other_processes")
    left = (waterfall.unattributed_bytes or 0) - waterfall.error_bytes
    total = waterfall.total_bytes or 0
    return named + (left if left > UNATTRIBUTED_RATIO * total else 0)


class _Harm(NamedTuple):
    """What goes wrong for want of a GPU's memory, in words; no ``tier`` where nothing does."""

    words: str = ""
    tier: Tier | None = None


def _harm(view: View, gpu: str) -> _Harm:
    state = view.state
    failed = sum(failure.event.count for failure in state.failures if _is_here(state, failure, gpu))
    if failed:
        how = "an allocation failed" if failed == 1 else f"{failed:,} allocations failed in the last 10 min"
        return _Harm(how, "warn")  # oom pages for that
    retries = sum(row.retries_per_minute or 0.0 for row in view.signals.allocators if row.gpu == gpu and row.engine)
    if retries < RETRIES:
        return _Harm()
    how = f"torch had to empty its cache and try again {retries:.1f} times a minute"
    return _Harm(how, "page" if retries > view.policy.allocator.retries else "warn")


def _is_here(state: AgentState, failure: Failure, gpu: str) -> bool:
    lately = failure.event.kind == OOM and state.at - failure.event.at < RECENT_SECONDS
    return lately and bool(failure.engine) and failed_on(state, failure) == gpu
