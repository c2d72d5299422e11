"""Whether something grows: the slope of a line through means, with the interval in which it lies 19 times of 20."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, fmean


@dataclass(frozen=True, slots=True)
class Trend:
    """Per hour, in the values' unit. ``level`` is the mean of all values."""

    slope: float
    low: float
    high: float
    level: float

    @property
    def grows(self) -> bool:
        """Whether the slope can be told from 0, upwards."""
        return self.low > 0

    def __str__(self) -> str:
        return f"{self.level:.2f}, {self.slope:+.3f} per hour [{self.low:+.3f}, {self.high:+.3f}]"


def trend(samples: Sequence[tuple[float, float]], pieces: int = 20) -> Trend:
    """Return the trend of (seconds, value). Values near each other are alike, and would make it look surer than it is:
    the line goes through the means of so many pieces of equal length, and means that wander together count as fewer
    (Santer et al. 2000, J. Geophys. Res. 105, 7337: by the lag-1 autocorrelation of the residuals). Needs samples in 3
    pieces.
    """
    began, ended = samples[0][0], samples[-1][0]
    width = (ended - began) / pieces or 1.0
    held: dict[int, list[tuple[float, float]]] = {}
    for at, value in samples:
        held.setdefault(min(pieces - 1, int((at - began) / width)), []).append((at, value))
    points = [(fmean(at for at, _ in each) / 3600, fmean(value for _, value in each)) for each in held.values()]
    if len(points) < 3:
        raise ValueError(f"{len(points)} pieces have samples: too few for a line with an interval")
    mean_at, mean_value = fmean(at for at, _ in points), fmean(value for _, value in points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    slope = sum((at - mean_at) * (value - mean_value) for at, value in points) / spread
    rests = [value - mean_value - slope * (at - mean_at) for at, value in points]
    free = independent(rests) - 2
    error = student(free) * math.sqrt(math.fsum(rest**2 for rest in rests) / free / spread)
    return Trend(slope, slope - error, slope + error, fmean(value for _, value in samples))


def independent(rests: Sequence[float]) -> float:
    """Return as how many independent values these ``rests`` of a line count; 3 at the least."""
    squares = math.fsum(rest**2 for rest in rests)
    alike = math.fsum(one * next_ for one, next_ in pairwise(rests)) / squares if squares else 0.0
    return max(3.0, len(rests) * (1 - max(0.0, alike)) / (1 + max(0.0, alike)))


def student(free: float) -> float:
    """Return the 97.5th percentile of Student's t with so many degrees of freedom (Cornish-Fisher; 1 % off at 4)."""
    z = NormalDist().inv_cdf(0.975)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3
