"""What an engine's numbers mean over time. Signals count by minutes and hours, metrics by seconds."""

from __future__ import annotations

from collections.abc import Iterator

from agent.signals.types import EngineSignals, Forecast, Rate, Slow
from agent.state import AgentState
from exporters import catalogue as c
from exporters.catalogue import Metric
from exporters.collectors.base import Sample, known
from exporters.collectors.rows import once

MINUTE, HOUR = 60.0, 3600.0

# Metric, the signal's name, and by what it is divided.
_VALUES: tuple[tuple[Metric, str, float], ...] = (
    (c.KV_USE, "use_ratio", 1.0),
    (c.KV_ACCELERATION, "acceleration", MINUTE * MINUTE),
    (c.KV_DOUBLING, "doubling_seconds", 1.0),
    (c.KV_FLOOR, "floor_ratio", 1.0),
    (c.KV_AMPLITUDE, "amplitude_ratio", 1.0),
    (c.KV_PERIOD, "period_seconds", 1.0),
    (c.KV_IDLE_FLOOR, "idle_floor_ratio", 1.0),
    (c.KV_TAIL_WASTE, "tail_waste_ratio", 1.0),
    (c.KV_PER_RUNNING, "blocks_per_running", 1.0),
    (c.KV_PER_TOKEN, "bytes_per_generated_token", 1.0),
    (c.KV_TAKEN, "taken_per_minute", MINUTE),
    (c.KV_GIVEN_BACK, "given_back_per_minute", MINUTE),
    (c.KV_RESIDUE, "residue_bytes", 1.0),
    (c.HARM, "harm", 1.0),
    (c.PREEMPTIONS, "preempted_per_minute", MINUTE),
    (c.REFUSALS, "refused_per_minute", MINUTE),
    (c.REBUILD, "rebuild_ratio", 1.0),
    (c.REBUILD_EVICTED, "rebuild_evicted_ratio", 1.0),
    (c.REBUILD_COST, "rebuild_cost_ratio", 1.0),
    (c.PREFIX_HITS, "prefix_hit_ratio", 1.0),
    (c.PREFIX_TIMES, "prefix_hit_times", 1.0),
    (c.WAIT_P99, "latency_p99_seconds", 1.0),
    (c.TAKE_P99, "take_p99_seconds", 1.0),
    (c.FAILED, "failed_ratio", 1.0),
    (c.STILL, "still_seconds", 1.0),
    (c.TOKENS, "tokens_per_second", 1.0),
    (c.TOKENS_PER_RUNNING, "tokens_per_running", 1.0),
    (c.REQUEST_P99, "request_p99_seconds", 1.0),
    (c.REQUEST_TIMES, "request_p99_times", 1.0),
    (c.CONTEXT, "context_mean_tokens", 1.0),
    (c.CONTEXT_TIMES, "context_times", 1.0),
    (c.LONG_TAIL, "long_tail_ratio", 1.0),
    (c.LONG_TAIL_TIMES, "long_tail_times", 1.0),
    (c.INTERRUPTED, "interruption_ratio", 1.0),
)
_OF_DETAIL = tuple(row for row in _VALUES if row[0].detail)
_OF_BASE = tuple(row for row in _VALUES if not row[0].detail)


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield the signals of each engine, as far as they are not :func:`collect_detail`'s."""
    for each in _engines(state):
        yield from _engine(each)


def collect_detail(state: AgentState) -> Iterator[Sample]:
    """Yield the others of them."""
    for each in _engines(state):
        yield from _values(each, _OF_DETAIL)
        yield from slow(c.KV_SLOW_UNEXPLAINED, (each.engine,), each.slow_unexplained)
        if each.slow is not None:
            yield Sample(c.KV_LEAKS, (each.engine,), each.slow.leaks)


def _engines(state: AgentState) -> Iterator[EngineSignals]:
    """Yield those of each engine; of one that has hooks and a page, those of its hooks."""
    signals = state.judgement.signals.engines if state.judgement else ()
    return once(sorted(signals, key=lambda each: not each.hooked), lambda each: each.engine)


def _values(signals: EngineSignals, rows: tuple[tuple[Metric, str, float], ...]) -> Iterator[Sample]:
    label = (signals.engine,)
    for metric, name, divided_by in rows:
        value = getattr(signals, name)
        if value is not None:
            yield Sample(metric, label, value / divided_by)


def _engine(signals: EngineSignals) -> Iterator[Sample]:
    label = (signals.engine,)
    yield from _values(signals, _OF_BASE)
    yield from rate(c.KV_GROWTH, label, signals.growth)
    yield from rate(c.KV_UNEXPLAINED_GROWTH, label, signals.unexplained)
    yield from forecast(c.KV_EXHAUSTION, label, signals.exhaustion)
    yield from slow(c.KV_SLOW_GROWTH, label, signals.slow)


def rate(metric: Metric, labels: tuple[str, ...], value: Rate | None) -> Iterator[Sample]:
    """Yield an estimate a minute and the ends of its interval, a second."""
    if value is not None:
        yield from _bounds(metric, labels, value.per_minute / MINUTE, value.low / MINUTE, value.high / MINUTE)


def slow(metric: Metric, labels: tuple[str, ...], value: Slow | None) -> Iterator[Sample]:
    """Yield an estimate an hour and the ends of its interval, a second."""
    if value is not None:
        yield from _bounds(metric, labels, value.per_hour / HOUR, value.low / HOUR, value.high / HOUR)


def forecast(metric: Metric, labels: tuple[str, ...], value: Forecast | None) -> Iterator[Sample]:
    """Yield a forecast and the ends of its interval; the later one may be open."""
    if value is not None:
        yield from _bounds(metric, labels, value.seconds, value.low, value.high)


def _bounds(
    metric: Metric, labels: tuple[str, ...], estimate: float, low: float, high: float | None
) -> Iterator[Sample]:
    yield Sample(metric, (*labels, "estimate"), estimate)
    yield Sample(metric, (*labels, "low"), low)
    yield from known(metric, (*labels, "high"), high)
