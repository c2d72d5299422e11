"""Sound engines at work, on which nothing but the watchdog may fire."""

from __future__ import annotations

from exporters import catalogue as c
from tests.unit.alerts.cases.base import AGENT, ESTIMATE, E, G, tooth
from tests.unit.alerts.cases.device import PROCESS
from tests.unit.alerts.promtool import BREACH, Series, Value, after, always, between, of, ramp, verdict


def falls(at: float) -> float | None:
    """Work that a restart ends: nothing in between."""
    return None if BREACH <= at < BREACH + 120 else 0.3


def healthy(name: str, use: Value, *also: Series) -> tuple[str, tuple[Series, ...]]:
    """A sound engine at work, whose pool is used so."""
    return name, (
        *AGENT,
        of(c.KV_USE, use, **E),
        of(c.KV_HELD, lambda at: None if (found := use(at)) is None else 1000 * found, **E),
        of(c.KV_CAPACITY, 1000, **E),
        of(c.KV_ORPHANED, 0, **E),
        of(c.KV_OVER_FREED, 0, **E),
        of(c.HEALTH_SCORE, 60, scope="engine", engine="m", form="kvtide"),
        of(c.BREAKER_OPEN, 0),
        of(c.POLICY_LOADED, 1),
        *also,
    )


HEALTHY = (
    healthy(
        "warm-up",
        ramp(0, 0.002, 0.95),
        of(c.KV_GROWTH, 0.002, **E, **ESTIMATE),
        of(c.KV_UNEXPLAINED_GROWTH, between(0.002, 0, 100), **E, **ESTIMATE),
        of(c.KV_EXHAUSTION, between(300, 0, 480), **E, **ESTIMATE),
        of(c.ENGINE_START, 0, **E),
        of(c.GPU_USE, 0.92, **G),
        of(c.GPU_GROWTH, between(0.01, 0, 120, 0), **G, **ESTIMATE),
    ),
    healthy(
        "a long document",
        ramp(0.3, 0.0004, 0.99),
        of(c.KV_GROWTH, 0.0004, **E, **ESTIMATE),
        of(c.KV_UNEXPLAINED_GROWTH, 0, **E, **ESTIMATE),
        of(c.KV_EXHAUSTION, 200, **E, **ESTIMATE),
        of(c.CONTEXT, 60000, **E),
        of(c.HARM, 0, **E),
    ),
    healthy(
        "a restart",
        falls,
        of(c.ENGINE_RESTARTS, after(1, before=0), **E),
        verdict("engine_missing", "note", between(1, 600, 720)),
        of(c.ACTIONS, lambda at: 4 if at < 600 else None, lever="trim", result="failed"),
    ),
    healthy(
        "a saw-tooth",
        tooth(0.45, 0.95),
        of(c.KV_AMPLITUDE, 0.5, **E),
        of(c.KV_FLOOR, 0.2, **E),
        of(c.KV_EXHAUSTION, tooth(600, 30), **E, **ESTIMATE),
        of(c.KV_GROWTH, 0.002, **E, **ESTIMATE),
        of(c.KV_UNEXPLAINED_GROWTH, 0.0001, **E, **ESTIMATE),
    ),
    healthy(
        "gaps of a source",
        lambda at: None if at % 600 >= 500 else 0.97,
        of(c.ENGINE_OOM_KILLS, lambda at: None if at % 600 >= 500 else 2, **E),
        of(c.ALLOCATOR_RETRIES_TOTAL, lambda at: None if at % 600 >= 500 else 40, **PROCESS),
    ),
    healthy(
        "full, and serves",
        always(0.995),
        of(c.HARM, 0, **E),
        of(c.REQUESTS_WAITING, 40, **E),
        of(c.REBUILD, 0.05, **E),
        of(c.PREEMPTIONS, 0.02, **E),
        of(c.GPU_USE, 0.93, **G),
        of(c.GPU_KV, 0.7, **G),
    ),
)
