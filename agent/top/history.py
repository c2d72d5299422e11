"""What sparklines are drawn from: a few numbers of each engine, moment by moment, and no more than fits on a screen."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.state import AgentState

MOST_MOMENTS = 240  # no screen is wider
MOST_ENGINES = 256  # of one moment


class Who(NamedTuple):
    """An engine: its label, and whether it has hooks; one of each kind may have the same label."""

    label: str
    hooked: bool


class Point(NamedTuple):
    """``held``: share of the pool; ``growth``: share of the pool a minute; ``acceleration``: that, a minute."""

    held: float | None
    growth: float | None
    acceleration: float | None


class Moment(NamedTuple):
    """All engines at ``monotonic`` seconds of the agent's clock."""

    monotonic: float
    points: Mapping[Who, Point]


def moment_of(state: AgentState) -> Moment:
    """Return what of a state is kept."""
    points: dict[Who, Point] = {}
    for engine in state.engines[:MOST_ENGINES]:
        pool = engine.pool
        held = pool.held / pool.capacity if pool is not None and pool.capacity else None
        points[Who(engine.engine, hooked=True)] = Point(held, None, None)
    for page in (state.scrape.engines if state.scrape else ())[:MOST_ENGINES]:
        points[Who(page.engine, hooked=False)] = Point(page.usage_ratio, None, None)
    for signals in state.judgement.signals.engines if state.judgement else ():
        who = Who(signals.engine, signals.hooked)
        if who in points:
            growth = signals.growth.per_minute if signals.growth else None
            points[who] = Point(points[who].held, growth, signals.acceleration)
    return Moment(state.monotonic, points)


class History:
    """The last moments, oldest first. An agent that was restarted, or another recording, begins anew."""

    def __init__(self, moments: Iterable[Moment] = ()) -> None:
        self._moments = deque(moments, MOST_MOMENTS)

    def take(self, moment: Moment) -> None:
        """Append a moment; one that is not later than the last is of another life."""
        if self._moments and moment.monotonic <= self._moments[-1].monotonic:
            if moment.monotonic == self._moments[-1].monotonic:
                return
            self._moments.clear()
        self._moments.append(moment)

    def of(self, who: Who) -> list[Point | None]:
        """Return an engine's points, from when it was first seen; None where it was not there."""
        found = [each.points.get(who) for each in self._moments]
        first = next((place for place, point in enumerate(found) if point is not None), len(found))
        return found[first:]

    def seconds(self, points: int) -> float:
        """Return the time that the last so many points span."""
        times = [each.monotonic for each in self._moments][-points:] if points > 0 else []
        return times[-1] - times[0] if times else 0.0


def values(points: Sequence[Point | None], field: str) -> list[float | None]:
    """Return one number of each point."""
    return [None if point is None else getattr(point, field) for point in points]
