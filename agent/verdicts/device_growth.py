"""device_growth: memory of a GPU that neither torch nor a KV pool accounts for grows.

Collective libraries (NCCL), the driver's contexts, registered transfer memory, other processes. A process that starts
takes its memory in minutes and stops: so growth of minutes counts only where the GPU is nearly full, and an engine
serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from agent.plain import plain
from agent.signals.types import GpuSignals, Rate, Slow
from agent.state import AgentState, Tier
from agent.subject import Subject
from agent.units import human_bytes, human_seconds
from agent.verdicts.base import Finding, View
from agent.verdicts.leaking import amount, ends_in, fast_ends_in, leaks, shape
from agent.verdicts.who import serves, total_of, worst
from agent.waterfall.build import summed
from agent.waterfall.state import PartName

NEARLY_FULL = 0.15  # free share below which growth of minutes counts
FAST_CONFIRM_SECONDS = 60.0
FAST_SECONDS = 60.0  # a rate over less than that is one step
# Used memory of nobody knows whom has torch's in it, whose high-water marks come ever less often: it is watched for
# longer, unless it ends within a day.
UNTOLD_SECONDS = 4 * 3600.0
FAR_SECONDS = 86_400.0
_WORDS = {
    "context": "contexts and libraries (NCCL, CUDA) of {owner}",
    "untold": "memory of {owner} that it doesn't tell of",
}
REMEDY = (
    "See whose it is: `kvtide status --waterfall` and nvidia-smi name the processes. Of a library's or the driver's "
    "own memory nothing gives a part back: restart that process in a calm hour. Evicting KV blocks frees none of it."
)
REMEDY_OTHERS = (
    "Another process takes it: move it to another GPU or stop it, or give this engine a lower gpu_memory_utilization. "
    "Evicting KV blocks frees none of it."
)
REMEDY_UNKNOWN = (
    "kvtide can't see who takes it: look with nvidia-smi, and install the hooks to tell torch's memory from others'."
)


class DeviceGrowth:
    """Fires on the slow estimate of what is not torch's; of minutes only where it will end soon."""

    kind = "device_growth"
    confirm_seconds = 120.0
    clear_seconds = 600.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the GPUs that fill up with what torch doesn't hold."""
        return worst(_all(view))


@dataclass(frozen=True, slots=True)
class _Grows:
    """One part of a GPU's memory. ``remedy``: what helps where nothing better is known of whose it is."""

    words: str
    size: int | None
    growth: Rate | None
    slow: Slow | None
    parts: tuple[PartName, ...]
    remedy: str


class _Told(NamedTuple):
    """``by``: how fast, in words; ``left``: seconds until nothing is free, where that is known."""

    by: str
    evidence: dict[str, float]
    left: float | None
    tier: Tier


def _grows(gpu: GpuSignals) -> tuple[_Grows, ...]:
    if gpu.other_bytes is None and gpu.foreign_bytes is None:
        return (_Grows("Used memory", None, gpu.growth, gpu.slow, (), REMEDY_UNKNOWN),)
    other = "Memory that neither torch nor the KV cache accounts for"
    foreign = "Memory of processes that don't report to kvtide"
    return (
        _Grows(other, gpu.other_bytes, gpu.other_growth, gpu.other_slow, ("context", "untold"), REMEDY),
        _Grows(foreign, gpu.foreign_bytes, gpu.foreign_growth, gpu.foreign_slow, (), REMEDY_OTHERS),
    )


def _all(view: View) -> Iterator[tuple[Subject, Finding]]:
    for gpu in view.signals.gpus:
        for part in _grows(gpu):
            for finding in (_soon(gpu, part, view), _slowly(gpu, part, view)):
                if finding is not None:
                    yield Subject(scope="gpu", gpu=gpu.gpu), finding


def _slowly(gpu: GpuSignals, part: _Grows, view: View) -> Finding | None:
    slow = part.slow
    if slow is None or not leaks(slow):
        return None
    total = total_of(view.state, gpu.gpu)
    left = ends_in(slow, total, gpu.free_bytes)
    if part.size is None and slow.seconds < UNTOLD_SECONDS and (left is None or left >= FAR_SECONDS):
        return None
    by = f"{amount(slow, total)}, for {human_seconds(slow.seconds)} now{shape(slow)}"
    evidence: dict[str, float] = {"ratio_per_hour": slow.per_hour, "seconds": slow.seconds}
    if slow.staircase:
        evidence["steps"] = slow.staircase
    short = left is not None and left < view.policy.host.limit_seconds and serves(view, gpu.gpu)
    return _finding(gpu, part, view.state, _Told(by, evidence, left, "page" if short else "warn"))


def _soon(gpu: GpuSignals, part: _Grows, view: View) -> Finding | None:
    rate = part.growth
    if rate is None or rate.low <= 0 or rate.seconds < FAST_SECONDS:
        return None
    total = total_of(view.state, gpu.gpu)
    left = fast_ends_in(rate, total, gpu.free_bytes)
    if left is None or total is None or gpu.free_bytes is None:
        return None
    limits = view.policy.growth
    short = left < limits.forecast_seconds
    if view.policy.profile == "textbook":
        judged = rate.per_minute > limits.warn_per_minute
    else:
        judged = short and gpu.free_bytes < NEARLY_FULL * total and serves(view, gpu.gpu)
    if not judged:
        return None
    by = f"{human_bytes(rate.per_minute * total)} a minute"
    evidence = {"ratio_per_minute": rate.per_minute, "seconds": rate.seconds}
    tier: Tier = "page" if short or rate.per_minute > limits.page_per_minute else "warn"
    finding = _finding(gpu, part, view.state, _Told(by, evidence, left, tier))
    return replace(finding, confirm_seconds=FAST_CONFIRM_SECONDS)


def _finding(gpu: GpuSignals, part: _Grows, state: AgentState, told: _Told) -> Finding:
    text = f"{part.words} on GPU {gpu.gpu} grows by {told.by}."
    evidence = told.evidence
    if part.size is not None:
        evidence["bytes"] = part.size
        text += f" It is {human_bytes(part.size)} now{_most(state, gpu.gpu, part)}."
    if told.left is not None and gpu.free_bytes is not None:
        evidence |= {"left_seconds": told.left, "free_bytes": gpu.free_bytes}
        text += f" {human_bytes(gpu.free_bytes)} are free: enough for {human_seconds(told.left)} at this rate."
    return Finding(text, part.remedy, evidence, tier=told.tier)


def _most(state: AgentState, gpu: str, grows: _Grows) -> str:
    """Say whose the most of it is; empty where that is not known."""
    for waterfall in state.waterfalls:
        parts = [part for part in summed(waterfall.parts) if part.part in grows.parts and part.bytes]
        if waterfall.gpu == gpu and parts:
            most = max(parts, key=lambda part: part.bytes)
            name = most.owner.removeprefix("torch/")
            owner = f"{'engine' if name == most.owner else 'process'} {plain(name, 60)}"
            return f", most of it {_WORDS[most.part].format(owner=owner)} ({human_bytes(most.bytes)})"
    return ""
