"""How fast the floor of a value that goes up and down rises: small and robust, over minutes only.

The lowest value of each quarter of a minute is kept, so that a saw-tooth shorter than that leaves no trace; the slope
is the median of those between all pairs (Theil 1950, Sen 1968), so that one step or one tooth more does not make it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from agent.estimators import pair_slopes

BIN_SECONDS = 15.0
BINS = 12
MIN_POINTS = 5
MIN_POINTS_EACH = 4  # in each half, for the change of the slope


class Growth(NamedTuple):
    """``per_minute`` in the value's unit; ``acceleration`` is its change in a minute, None with too few points."""

    per_minute: float
    acceleration: float | None


def growth(points: Sequence[tuple[float, float]]) -> Growth | None:
    """Return the growth of ``points`` (seconds, value), sorted by time; None while they are too few."""
    if len(points) < MIN_POINTS:
        return None
    slope = _slope(points) * 60
    half = len(points) // 2
    early, late = points[:half], points[-half:]
    if half < MIN_POINTS_EACH:
        return Growth(slope, None)
    apart = median(at for at, _ in late) - median(at for at, _ in early)
    return Growth(slope, (_slope(late) - _slope(early)) * 60 * 60 / apart)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    return median(pair_slopes(*zip(*points, strict=True)))


class Floor:
    """Keeps the lowest value of each quarter of a minute, for three minutes."""

    def __init__(self) -> None:
        self._closed: deque[tuple[float, float]] = deque(maxlen=BINS)
        self._open: tuple[int, float] | None = None
        self._growth: Growth | None = None

    def add(self, at: float, value: float) -> Growth | None:
        """Take a value; return the growth up to the last full quarter of a minute."""
        number = int(at // BIN_SECONDS)
        if self._open is None or number == self._open[0]:
            self._open = (number, value if self._open is None else min(value, self._open[1]))
            return self._growth
        self._closed.append(((self._open[0] + 0.5) * BIN_SECONDS, self._open[1]))
        self._open = (number, value)
        oldest = (number - BINS) * BIN_SECONDS
        while self._closed and self._closed[0][0] < oldest:  # a gap
            self._closed.popleft()
        self._growth = growth(list(self._closed))
        return self._growth
