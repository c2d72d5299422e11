"""What the cases of all conditions are made of."""

from __future__ import annotations

from collections.abc import Sequence

from exporters import catalogue as c
from tests.unit.alerts.promtool import MINUTES, Case, Series, Value, always, of, verdict

E = {"engine": "m"}
G = {"gpu": "0"}
ESTIMATE = {"bound": "estimate"}
UP = Series("up", {}, always(1))
AGENT = (UP, of(c.AGENT_START, 0))  # it has been there all the time
GIB = 2**30


def pair(
    alert: str, fires: Sequence[Series], quiet: dict[str, Sequence[Series]], minutes: int = MINUTES, **labels: str
) -> tuple[Case, ...]:
    """One case that fires and some that don't. ``labels`` of the alert; engine and gpu are always set."""
    told = {"engine": "none", "gpu": "none"} | labels
    return (
        Case(alert, "fires", fires, labels=told, minutes=minutes),
        *(Case(alert, name, series, fires=False, minutes=minutes) for name, series in quiet.items()),
    )


def judged(alert: str, kind: str, *also: Series, tier: str = "warn", **about: str) -> tuple[Case, ...]:
    """An alert on a verdict: it fires where it is confirmed, not where it is suspected, or only noted, or over soon."""
    told = {"engine": "m"} | {name: value for name, value in about.items() if name in ("engine", "gpu")}
    return pair(
        alert,
        [verdict(kind, tier, **about), *also],
        {
            "suspected": [verdict(kind, tier, phase="suspect", **about), *also],
            "noted": [verdict(kind, "note", **about), *also],
            "another kind": [verdict("workload_shift_of_old", tier, **about), *also],
        },
        **{name: value for name, value in told.items() if value},
    )


def tooth(low: float, high: float, period: int = 240) -> Value:
    """A saw-tooth."""
    return lambda at: low + (high - low) * (at % period) / period
