"""Pressure as the incident write-ups judge it (profile textbook): by the numbers alone, whether they do harm or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.retained import count_of
from agent.state import Tier
from agent.units import human_bytes, human_seconds
from agent.verdicts.base import Facts, Finding
from agent.verdicts.harm import brief, fp8_factor

_AT_ONCE = 0.0  # the signal has its own duration already


def _use(facts: Facts) -> Finding | None:
    signals, policy = facts.signals, facts.policy.use
    if signals is None or signals.use_ratio is None:
        return None
    use, factor = signals.use_ratio, fp8_factor(facts)
    if use < policy.warn_ratio * factor:
        return None
    # With FP8 the thresholds are lower than those that the signal's durations are of.
    page = use >= policy.page_ratio * factor and (factor < 1 or signals.above_page_seconds >= policy.page_seconds)
    seconds = policy.page_seconds if page else policy.warn_seconds
    return _finding(f"{use:.0%} of the KV pool is held.", {"use_ratio": use}, page, seconds)


def _growth(facts: Facts) -> Finding | None:
    signals, policy = facts.signals, facts.policy.growth
    if signals is None or not signals.settled or signals.growth is None:
        return None
    growth = signals.growth.per_minute
    doubles = signals.doubling_seconds
    doubling = doubles is not None and doubles < policy.doubling_seconds and growth > policy.accelerating_per_minute
    if growth <= policy.warn_per_minute and not doubling:
        return None
    fast = growth > policy.page_per_minute and signals.growth_above_page_seconds >= policy.page_seconds
    text = f"Held blocks grow by {growth:.1%} of the pool a minute"
    evidence = {"growth_ratio_per_minute": growth}
    if doubling and doubles is not None:
        evidence["doubling_seconds"] = doubles
        text += f", and that doubles in {human_seconds(doubles)}"
    return _finding(f"{text}.", evidence, fast or doubling, _AT_ONCE if fast else 30.0)


def _forecast(facts: Facts) -> Finding | None:
    signals, policy = facts.signals, facts.policy.growth
    if signals is None or not signals.settled or signals.exhaustion is None or signals.use_ratio is None:
        return None
    ahead, held = signals.exhaustion, policy.forecast_held_ratio * fp8_factor(facts)
    if ahead.seconds >= policy.forecast_seconds or signals.use_ratio <= held:
        return None
    text = f"The KV pool is full in about {human_seconds(ahead.seconds)}; {signals.use_ratio:.0%} of it is held."
    return _finding(text, {"exhaustion_seconds": ahead.seconds, "use_ratio": signals.use_ratio}, True, 10.0)


def _latency(facts: Facts) -> Finding | None:
    signals, policy = facts.signals, facts.policy.allocator
    if signals is None:
        return None
    latency = max(signals.latency_p99_seconds or 0.0, signals.take_p99_seconds or 0.0)
    if latency < policy.latency_warn_seconds:
        return None
    text = f"To get blocks takes {brief(latency)} (p99)."
    return _finding(text, {"memory_wait_p99_seconds": latency}, latency >= policy.latency_page_seconds, 5.0)


def _refusals(facts: Facts) -> Finding | None:
    policy, row = facts.policy.allocator, facts.detail.allocation if facts.detail else None
    if row is None:
        return None
    if row.consecutive_refusals >= policy.failures_in_a_row:
        text = f"Memory was refused {row.consecutive_refusals:,} times in a row."
        return _finding(text, {"refusals_in_a_row": row.consecutive_refusals}, True, _AT_ONCE)
    if row.most_retries > policy.retries:
        text = f"One waiting request was refused memory {row.most_retries:,} times."
        return _finding(text, {"most_retries": row.most_retries}, False, _AT_ONCE)
    return None


def _queue(facts: Facts) -> Finding | None:
    signals, policy = facts.signals, facts.policy.serving
    queue = signals.queue if signals else None
    if queue is None or queue <= policy.queue_warn:
        return None
    text = f"{count_of(queue, 'request')} wait."
    return _finding(text, {"waiting_requests": queue}, queue > policy.queue_page, 5.0)


def _failed(facts: Facts) -> Finding | None:
    ratio, policy = facts.signals.failed_ratio if facts.signals else None, facts.policy.serving
    if ratio is None or ratio <= policy.failed_warn_ratio:
        return None
    text = f"{ratio:.1%} of the requests that ended have failed."
    return _finding(text, {"failed_ratio": ratio}, ratio > policy.failed_page_ratio, 10.0)


def _slow_requests(facts: Facts) -> Finding | None:
    times, policy = facts.signals.request_p99_times if facts.signals else None, facts.policy.serving
    if times is None or times <= policy.latency_warn_times:
        return None
    text = f"The slowest 1% of requests take {times:.1f} times as long as usual."
    return _finding(text, {"request_p99_times": times}, times > policy.latency_page_times, 60.0)


def _memory(facts: Facts) -> Finding | None:
    signals, policy = facts.signals, facts.policy.residue
    if signals is None or signals.kv_p90_bytes is None or signals.kv_p99_bytes is None:
        return None
    most, page = signals.kv_p99_bytes, signals.kv_p99_bytes > policy.kv_p99_bytes
    if signals.kv_p90_bytes <= policy.kv_p90_bytes and not page:
        return None
    text = f"Held blocks had {human_bytes(signals.kv_p90_bytes)} or more in a tenth of the last half hour"
    evidence = {"kv_p90_bytes": signals.kv_p90_bytes, "kv_p99_bytes": most}
    return _finding(f"{text}, and {human_bytes(most)} at its peaks (p99).", evidence, page, 10.0)


def _teeth(facts: Facts) -> Finding | None:
    signals, policy = facts.signals, facts.policy.residue
    if signals is None or signals.amplitude_ratio is None or signals.floor_ratio is None:
        return None
    if signals.amplitude_ratio <= policy.tooth_amplitude_ratio or signals.floor_ratio <= policy.tooth_floor_ratio:
        return None
    return _finding(
        f"Held blocks go up and down by {signals.amplitude_ratio:.0%} of the pool and never below "
        f"{signals.floor_ratio:.0%}.",
        {"tooth_amplitude_ratio": signals.amplitude_ratio, "tooth_floor_ratio": signals.floor_ratio},
        False,
        60.0,
    )


def _finding(sentence: str, evidence: Mapping[str, float], page: bool, seconds: float) -> Finding:
    tier: Tier = "page" if page else "warn"
    return Finding(sentence, "", dict(evidence), tier, seconds)


RULES: tuple[Callable[[Facts], Finding | None], ...] = (
    _use,
    _growth,
    _forecast,
    _latency,
    _refusals,
    _queue,
    _failed,
    _slow_requests,
    _memory,
    _teeth,
)
