"""A histogram as the hooks keep them: counts that only grow."""

from __future__ import annotations

from bisect import bisect_left

from engine_hooks.detail import Histogram


class Counts:
    """A histogram that only grows."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float, number: int = 1) -> None:
        """Count ``value``, ``number`` times."""
        self._counts[bisect_left(self._bounds, value)] += number
        self._sum += value * number

    def row(self) -> Histogram:
        """Return it as the wire has it."""
        return Histogram(bounds=self._bounds, counts=tuple(self._counts), sum=self._sum)
