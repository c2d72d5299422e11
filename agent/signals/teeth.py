"""Saw-teeth, followed as they come or in a whole series: rises and falls of one number, each kept once it has ended."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

KEEP_SECONDS = 1800.0
MOST_TEETH = 24
BROKEN_OUT = 1.25  # times the height of the highest: what rises by more is more than a tooth
OVERDUE = 2.0  # periods after which no more teeth are expected


class Trough(NamedTuple):
    """Where a tooth began: when, and at what level. ``peak``: what it rose to; ``end``: what it fell to."""

    at: float
    level: float
    peak: float
    peak_at: float
    end: float
    end_at: float


class Saw(NamedTuple):
    """What teeth have in common. ``period_seconds`` is None for a single one."""

    floor: float
    amplitude: float
    highest: float
    period_seconds: float | None


class Teeth:
    """Turning points with hysteresis: a peak is one once the value has fallen by ``least`` below it, and so on.

    ``most``: how many are kept, ``keep_seconds``: for how long.
    """

    def __init__(self, most: int | None = MOST_TEETH, keep_seconds: float = KEEP_SECONDS) -> None:
        self._found: deque[Trough] = deque(maxlen=most)
        self._keep = keep_seconds
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._found.clear()
        self._rising = False
        self._low: tuple[float, float] | None = None
        self._high = (0.0, 0.0)

    def add(self, now: float, value: float, least: float) -> None:
        """Take a value; smaller rises and falls than ``least`` are noise."""
        if self._low is None:
            self._low = (now, value)
        while self._found and self._found[0].end_at < now - self._keep:
            self._found.popleft()
        if self._rising:
            if value > self._high[1]:
                self._high = (now, value)
            elif value <= self._high[1] - least:
                begin = self._low
                self._found.append(Trough(*begin, self._high[1], self._high[0], value, now))
                self._rising, self._low = False, (now, value)
        elif value < self._low[1]:
            self._low = (now, value)
            if self._found:
                self._found[-1] = self._found[-1]._replace(end=value, end_at=now)
        elif value >= self._low[1] + least:
            self._rising, self._high = True, (now, value)

    def troughs(self) -> tuple[list[float], list[float]]:
        """Return when each tooth began and at what level, that of the one which rises now among them.

        How low it falls after the last peak is not known while it falls.
        """
        times, levels = [tooth.at for tooth in self._found], [tooth.level for tooth in self._found]
        if self._rising and self._low is not None:
            times.append(self._low[0])
            levels.append(self._low[1])
        return times, levels

    def saw(self) -> Saw | None:
        """Return what the teeth have in common; None where none has been seen in the last half hour."""
        found = self._found
        if not found:
            return None
        times = [tooth.peak_at for tooth in found]
        apart = [later - earlier for earlier, later in pairwise(times)]
        return Saw(
            floor=median(tooth.end for tooth in found),
            amplitude=median(tooth.peak - tooth.end for tooth in found),
            highest=max(tooth.peak for tooth in found),
            period_seconds=median(apart) if apart else None,
        )

    def due(self, now: float, value: float, saw: Saw) -> bool:
        """Return whether a rise to ``value`` now is what teeth do: others have risen as much and came down again.

        It is not once it rises by well more than all of them, or when none came for longer than two periods.
        """
        last = self._found[-1]
        highest = max(tooth.peak - tooth.level for tooth in self._found)
        if self._rising and self._low is not None and value - self._low[1] > BROKEN_OUT * highest:
            return False
        period = saw.period_seconds or 2 * max(last.end_at - last.at, 1.0)
        return now - last.end_at <= OVERDUE * period

    def broke_out_at(self) -> float | None:
        """Return when the rise began that goes on now; None while nothing rises."""
        return self._low[0] if self._rising and self._low else None

    def found(self) -> list[Trough]:
        """Return the teeth that are kept, oldest first; one that has not fallen is none yet."""
        return list(self._found)


def teeth(times: Sequence[float], values: Sequence[float], least: float) -> list[Trough]:
    """Return the teeth of a whole series: rises and falls of at least ``least``, smaller ones counted as noise."""
    track = Teeth(None, math.inf)
    for time, value in zip(times, values, strict=True):
        track.add(time, value, least)
    return track.found()
