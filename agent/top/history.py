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
    """The last moments, oldest first. An agent that was restarted, or another recording, begins anew.

    ``step``: seconds that one moment stands for, 0 for each by itself. Of the moments of one step the one in which an
    engine held most is kept for it, as the agent's own history does.
    """

    def __init__(self, moments: Iterable[Moment] = (), step: float = 0.0) -> None:
        self._step = step
        self._moments = deque(moments, MOST_MOMENTS)

    def copy(self) -> History:
        """Return what is known now, for one who does not want to see more."""
        return History(self._moments, self._step)

    def take(self, moment: Moment) -> None:
        """Append a moment; one that is not later than the last is of another life."""
        if self._moments and moment.monotonic <= self._moments[-1].monotonic:
            if moment.monotonic == self._moments[-1].monotonic:
                return
            self._moments.clear()
        if self._step and self._moments and self._place(moment) == self._place(self._moments[-1]):
            self._moments[-1] = _both(self._moments[-1], moment)
        else:
            self._moments.append(moment)

    def of(self, who: Who) -> list[Point | None]:
        """Return an engine's points, from when it was first seen; None where it was not there, or nobody looked."""
        found: list[Point | None] = []
        last: int | None = None
        for each in self._moments:
            point, place = each.points.get(who), self._place(each)
            if found and last is not None and place is not None:
                found += [None] * min(MOST_MOMENTS, place - last - 1)
            last = place
            if found or point is not None:
                found.append(point)
        return found[-MOST_MOMENTS:]

    def seconds(self, points: int) -> float:
        """Return the time that the last so many points span."""
        if points <= 0 or not self._moments:
            return 0.0
        times = [each.monotonic for each in self._moments]
        if self._step:
            return min(self._step * (points - 1), times[-1] - times[0])
        return times[-1] - times[-points:][0]

    def _place(self, moment: Moment) -> int | None:
        return int(moment.monotonic // self._step) if self._step else None


def _both(before: Moment, after: Moment) -> Moment:
    points = dict(before.points)
    for who, point in after.points.items():
        had = points.get(who)
        if had is None or (point.held or 0.0) >= (had.held or 0.0):
            points[who] = point
    return Moment(after.monotonic, points)


def values(points: Sequence[Point | None], field: str) -> list[float | None]:
    """Return one number of each point."""
    return [None if point is None else getattr(point, field) for point in points]
