"""Facts and signals by hand for tests of detectors, and judging hand-made signals over virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agent.judge import Judge
from agent.policy.types import DEFAULT, Policy
from agent.signals.reading import readings_of
from agent.signals.types import EngineSignals, Forecast, NodeSignals, Rate, Reading, Slow, TenantSignals
from agent.state import AgentState, Verdict
from agent.verdicts.base import Facts
from tests.unit.timeline import engine, pool, state


def signals(**changes: Any) -> EngineSignals:
    """Engine m, settled for an hour, half full and well."""
    values: dict[str, Any] = {
        "engine": "m",
        "instance": "i",
        "hooked": True,
        "age_seconds": 3600.0,
        "settled": True,
        "use_ratio": 0.5,
        "harm": False,
    }
    return EngineSignals(**values | changes)


def reading(**changes: Any) -> Reading:
    """Engine m: 500 of 1,000 blocks of 16 tokens, eight requests."""
    values: dict[str, Any] = {"engine": "m", "instance": "i", "hooked": True, "capacity": 1000, "held": 500}
    return Reading(**values | {"block_tokens": 16, "running": 8, "waiting": 0} | changes)


def facts(policy: Policy = DEFAULT, read: dict[str, Any] | None = None, **changes: Any) -> Facts:
    """Facts of engine m with these signals; ``read`` is what its reading says instead."""
    rest = {name: changes.pop(name) for name in ("pool", "detail", "tenants", "engine") if name in changes}
    told = reading(**read or {})
    return Facts(
        pool=rest.pop("pool", pool()),
        reading=told,
        running=told.running or 0,
        waiting=told.waiting or 0,
        signals=signals(**changes),
        policy=policy,
        **rest,
    )


def rate(per_minute: float, low: float | None = None) -> Rate:
    """A growth whose interval is a tenth on either side."""
    low = 0.9 * per_minute if low is None else low
    return Rate(per_minute=per_minute, low=low, high=1.1 * per_minute, seconds=180.0, samples=36)


def forecast(seconds: float) -> Forecast:
    """A forecast with an interval of a tenth."""
    return Forecast(seconds=seconds, low=0.9 * seconds, high=1.1 * seconds, condition="if it goes on")


def slow(**changes: Any) -> Slow:
    """Two per cent an hour for six hours, a leak."""
    values: dict[str, Any] = {"per_hour": 0.02, "low": 0.018, "high": 0.022, "later_per_hour": 0.02, "seconds": 21600.0}
    return Slow(**values | {"retained_ratio": 0.95, "leaks": True} | changes)


class _Script:
    """Stands in for the tracker of signals: they are what the test says at this moment."""

    def __init__(self) -> None:
        self.now = NodeSignals()

    def take(self, state: AgentState) -> NodeSignals:
        self.readings = {(each.engine, each.hooked): each for each, _ in readings_of(state)}
        return self.now


def phases(
    kind: str,
    moments: Iterable[float],
    said: Callable[[float], EngineSignals],
    *,
    policy: Policy = DEFAULT,
    there: Callable[[float], AgentState] | None = None,
    tenants: Callable[[float], tuple[TenantSignals, ...]] = lambda _: (),
) -> list[tuple[float, str]]:
    """Return when the verdict of ``kind`` changed its phase: seconds and phase, "none" where it was forgotten.

    ``said``: the signals of engine m at each moment; ``there``: the node at each.
    """
    judge, script = Judge(policy), _Script()
    judge._tracker = script  # type: ignore[assignment]
    changes: list[tuple[float, str]] = []
    last = "none"
    for t in moments:
        script.now = NodeSignals(engines=(said(t),), tenants=tenants(t))
        node = there(t) if there else state(t, engines=(engine(),))
        found = {each.kind: each for each in judge.look(node).verdicts}
        phase = found[kind].phase if kind in found else "none"
        if phase != last:
            changes.append((t, phase))
            last = phase
    return changes


def told(verdicts: Iterable[Verdict], kind: str) -> Verdict:
    """The only verdict of ``kind``."""
    (found,) = [each for each in verdicts if each.kind == kind]
    return found
