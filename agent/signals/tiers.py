"""Fourteen days of one number in some 400 points: its floor, finer where it is recent, coarser where it is old."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from agent.signals.kept import KeptTier

# A point each so many seconds, for so long.
TIERS = ((60.0, 2 * 3600.0), (300.0, 12 * 3600.0), (1800.0, 2 * 86400.0), (10800.0, 14 * 86400.0))


class Points(NamedTuple):
    """Times, floors, and what went beside each floor."""

    times: Sequence[float]
    values: Sequence[float]
    beside: Sequence[float]


class _Tier:
    def __init__(self, seconds: float, keep_seconds: float) -> None:
        self.seconds, self.keep_seconds = seconds, keep_seconds
        self.times, self.values, self.beside = array("d"), array("d"), array("d")
        self._until: float | None = None

    def add(self, at: float, value: float, beside: float) -> bool:
        """Take a point into the last bin, or begin a new one; return whether it did the latter."""
        if self._until is not None and at < self._until:
            if value < self.values[-1]:
                self.times[-1], self.values[-1], self.beside[-1] = at, value, beside
            return False
        begun = at if self._until is None else self._until
        self._until = begun + self.seconds * (1 + (at - begun) // self.seconds)
        self.times.append(at)
        self.values.append(value)
        self.beside.append(beside)
        return True

    def pop(self) -> tuple[float, float, float]:
        return self.times.pop(0), self.values.pop(0), self.beside.pop(0)

    def kept(self) -> KeptTier:
        return KeptTier(times=list(self.times), values=list(self.values), beside=list(self.beside), until=self._until)

    def restore(self, kept: KeptTier) -> bool:
        series = (kept.times, kept.values, kept.beside)
        most = self.keep_seconds / self.seconds + 2
        if (
            len({*map(len, series)}) > 1
            or len(kept.times) > most
            or not all(isfinite(x) for row in series for x in row)
        ):
            return False
        if kept.until is None or not isfinite(kept.until):
            return not kept.times and kept.until is None
        self.times, self.values, self.beside = (array("d", row) for row in series)
        self._until = kept.until
        return True


class Tiers:
    """Takes values as they come. The point that is still open is among :meth:`points`, too."""

    def __init__(self) -> None:
        self._tiers = [_Tier(*each) for each in TIERS]

    def add(self, now: float, value: float, beside: float) -> bool:
        """Take a value; return whether a minute is over."""
        fresh = self._tiers[0].add(now, value, beside)
        if fresh:
            for n, tier in enumerate(self._tiers):
                while tier.times and tier.times[0] < now - tier.keep_seconds:
                    point = tier.pop()
                    if n + 1 < len(self._tiers):
                        self._tiers[n + 1].add(*point)
        return fresh

    def kept(self) -> tuple[KeptTier, ...]:
        """Return all of it as plain data."""
        return tuple(tier.kept() for tier in self._tiers)

    def restore(self, kept: Sequence[KeptTier], now: float) -> bool:
        """Go on from what was kept before ``now``; return whether it is usable, else nothing is known."""
        whole = len(kept) == len(self._tiers) and all(map(_Tier.restore, self._tiers, kept))
        times = self.points().times
        if whole and all(one <= other for one, other in pairwise(times)) and (not times or times[-1] <= now):
            return True
        self._tiers = [_Tier(*each) for each in TIERS]
        return False

    def points(self) -> Points:
        """Return all points, oldest first; the last one is of a minute that is not over."""
        result = Points(array("d"), array("d"), array("d"))
        for tier in reversed(self._tiers):
            result.times.extend(tier.times)  # type: ignore[attr-defined]
            result.values.extend(tier.values)  # type: ignore[attr-defined]
            result.beside.extend(tier.beside)  # type: ignore[attr-defined]
        return result
