"""What an engine's signals say about how much new work it should get.

Only growth that nobody explains counts, or a forecast that such growth makes short. Held blocks that live requests have
may grow as they like: that is a ramp-up. It is the same in all profiles of the policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from agent.policy.types import GrowthPolicy
from agent.signals.types import EngineSignals, Rate
from agent.state import Verdict
from agent.subject import Value
from agent.units import human_seconds

# unknown: there is too little to tell. calm: nothing is wrong. uneasy: too much to give weight back, too little to
# take some away. halve, isolate: what is asked for.
Level = Literal["unknown", "calm", "uneasy", "halve", "isolate"]

CALM = 0.8  # of the threshold that halves: below that it is calm, in between neither
MOSTLY = 0.5  # of all growth: from there on it is mostly unexplained
STALE = "sensor_stale"


class Evidence(Value, frozen=True, kw_only=True):
    """``why`` is for people, with numbers and units."""

    level: Level
    why: str


def evidence_of(signals: EngineSignals | None, verdicts: Iterable[Verdict], policy: GrowthPolicy) -> Evidence:
    """Return what ``signals`` of one engine ask for. ``verdicts``: those about this engine.

    An engine of which only a page is known is halved at most: there, what is unexplained is inferred.
    """
    if signals is None:
        return Evidence(level="unknown", why="nothing is heard of it")
    # As a note it says that one of several hooks is off: what that one counted is absent, the rest is of now.
    if any(found.kind == STALE and found.phase == "confirmed" and found.tier != "note" for found in verdicts):
        return Evidence(level="unknown", why="its numbers are old")
    if not signals.settled:
        return Evidence(level="calm", why="it has just started, or its pool has just changed: growth is not judged yet")
    if signals.unexplained is None:
        why = signals.missing.get("unexplained", "it can't be told yet")
        return Evidence(level="unknown", why=f"unexplained growth: {why}")
    return _of_growth(signals, signals.unexplained, policy)


def _of_growth(signals: EngineSignals, rate: Rate, policy: GrowthPolicy) -> Evidence:
    lasts, short = signals.unexplained_above_page_seconds, _short_of_time(signals, policy)
    if rate.per_minute > policy.page_per_minute and rate.low > 0 and lasts >= policy.page_seconds:
        why = f"{_grows(rate)}, more than {policy.page_per_minute:.1%} for {human_seconds(lasts)}"
        return _isolate(signals, why)
    if short is not None:
        return _isolate(signals, f"{_grows(rate)}, and {short}")
    if rate.low <= 0 or rate.per_minute <= CALM * policy.warn_per_minute:
        return Evidence(level="calm", why=_grows(rate))
    if rate.per_minute > policy.warn_per_minute:
        return Evidence(level="halve", why=f"{_grows(rate)}, more than {policy.warn_per_minute:.1%}")
    return Evidence(level="uneasy", why=f"{_grows(rate)}: close to {policy.warn_per_minute:.1%}")


def _isolate(signals: EngineSignals, why: str) -> Evidence:
    return Evidence(level="isolate" if signals.hooked else "halve", why=why)


def _short_of_time(signals: EngineSignals, policy: GrowthPolicy) -> str | None:
    """Return what a forecast says that is short, sure, and mostly of growth that nobody explains."""
    forecast, use, rate = signals.exhaustion, signals.use_ratio, signals.unexplained
    if forecast is None or use is None or rate is None or rate.low <= 0:
        return None
    if forecast.seconds >= policy.forecast_seconds or use <= policy.forecast_held_ratio:
        return None
    if signals.growth is not None and rate.per_minute < MOSTLY * signals.growth.per_minute:
        return None
    return f"with {use:.0%} held its pool is full in {human_seconds(forecast.seconds)}"


def _grows(rate: Rate) -> str:
    return f"unexplained growth is {max(0.0, rate.per_minute):.1%} of the pool a minute"
