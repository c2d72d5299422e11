"""Harm that too little KV memory does to requests: what waits, what was thrown out, in words and in numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.policy.types import Policy
from agent.retained import count_of, listed
from agent.signals.types import EngineSignals, Reading
from agent.units import human_seconds
from agent.verdicts.base import Facts, View
from agent.verdicts.who import gpu_of

LEAST_WAITING = 2
WAITING_SHARE = 0.05  # of those that run
# A burst of one or two is what a full pool does now and then: of 19,801 requests that all ended well, 7 % were
# preempted.
LEAST_PREEMPTED = 3.0  # a minute


class Harm(NamedTuple):
    """``felt``: more than one request that waits, or one that is preempted now and then, as in any pool that is well
    used. ``severe``: by a number that the policy pages at.
    """

    words: str
    evidence: dict[str, float]
    felt: bool
    severe: bool


def harm_of(facts: Facts) -> Harm | None:
    """Return what memory did to requests in the last minute; None where it did nothing, or it can't be told."""
    signals = facts.signals
    if signals is None or not signals.harm:
        return None
    policy = facts.policy
    evidence: dict[str, float] = {}
    words: list[str] = []
    waiting = _waiting(facts)
    if waiting:
        evidence["waiting_requests"] = waiting
        words.append(f"{count_of(waiting, 'request')} waiting")
    if signals.preempted_per_minute:
        evidence["preempted_per_minute"] = signals.preempted_per_minute
        words.append(f"{count_of(max(1.0, signals.preempted_per_minute), 'preemption')} a minute")
    if signals.refused_per_minute:
        evidence["refused_per_minute"] = signals.refused_per_minute
    latency = signals.latency_p99_seconds
    if latency is not None and latency >= policy.allocator.latency_warn_seconds:
        evidence["memory_wait_p99_seconds"] = latency
        words.append(f"the slowest 1% waited {brief(latency)} for blocks")
    refusals = facts.reading.consecutive_refusals if facts.reading else None
    if refusals and refusals >= policy.allocator.failures_in_a_row:
        evidence["refusals_in_a_row"] = refusals
        words.append(f"{count_of(refusals, 'refusal')} in a row")
    failed, serving = signals.failed_ratio or 0.0, policy.serving
    if failed > serving.failed_warn_ratio:
        evidence["failed_ratio"] = failed
        words.append(f"{failed:.1%} of requests failed")
    severe = (
        (latency is not None and latency >= policy.allocator.latency_page_seconds)
        or "refusals_in_a_row" in evidence
        or (signals.queue_above_page_seconds > 0 and waits_for_memory(facts))
        or (signals.rebuild_ratio or 0.0) >= serving.rebuild_page_ratio
    )
    felt = (
        severe
        or "memory_wait_p99_seconds" in evidence
        or waiting >= max(LEAST_WAITING, WAITING_SHARE * facts.running)
        or (signals.preempted_per_minute or 0.0) >= LEAST_PREEMPTED
        or (signals.rebuild_ratio or 0.0) >= serving.rebuild_warn_ratio
        or "failed_ratio" in evidence
    )
    return Harm(listed(words) if words else "requests are being refused for memory", evidence, felt, severe)


def waits_for_memory(facts: Facts) -> bool:
    """Whether the queue stands for want of memory, or for what nobody knows: not for a place among the running."""
    reading, signals = facts.reading, facts.signals
    if reading is None or reading.waiting_refused is None:
        return True
    return reading.waiting_refused > 0 or bool(signals and signals.refused_per_minute)


def brief(seconds: float) -> str:
    """Return a short time as people say it: ``60 ms``, ``2.5 s``."""
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else human_seconds(seconds)


def _waiting(facts: Facts) -> int:
    """Requests that wait for memory, where the engine tells them apart; otherwise all that wait."""
    reading = facts.reading
    if reading is not None and reading.waiting_refused is not None:
        return reading.waiting_refused
    return facts.waiting


def fp8_factor(facts: Facts) -> float:
    """Return what thresholds of use are multiplied by: with FP8 the same share is more tokens, and fills faster."""
    return _factor(facts.policy, facts.reading.cache_dtype if facts.reading else "")


def fp8_factor_on(view: View, gpu: str) -> float:
    """Return the same for a GPU, by the engines that have a worker on it."""
    for engine in view.state.engines:
        if engine.pool is None or _factor(view.policy, engine.pool.cache_dtype) == 1:
            continue
        devices = (each.worker.device_uuid for each in engine.members if each.worker is not None)
        here = (gpu_of(view.state, uuid) for uuid in devices)
        if any(unit is not None and unit.gpu == gpu for unit in here):
            return view.policy.fp8_factor
    return 1.0


def _factor(policy: Policy, dtype: str) -> float:
    return policy.fp8_factor if dtype and dtype.lower().startswith("fp8") else 1.0


def of_each_rank(facts: Facts) -> str:
    """Return what bytes of blocks are of, led by a space: a block has its size on each rank; empty where one is all."""
    ranks = facts.engine.world_size if facts.engine is not None else None
    return f" on each of {ranks} ranks" if ranks is not None and ranks > 1 else ""


def held_ratio(reading: Reading | None) -> float | None:
    """Return the share of the pool that is held now."""
    if reading is None or reading.held is None or not reading.capacity:
        return None
    return reading.held / reading.capacity


def signals_of(view: View, engine: str) -> EngineSignals | None:
    """Return the signals of an engine, those of its hooks before those of its page."""
    found: Iterable[EngineSignals] = (each for each in view.signals.engines if each.engine == engine)
    return max(found, key=lambda each: each.hooked, default=None)
