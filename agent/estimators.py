"""Estimators of slopes, floors, saw-teeth and staircases. Pure functions of times (seconds) and values.

Times rise strictly and values have any unit; where a function needs a least size, it has the values' unit. Gaps need
no filling: each function uses the times. None means that there is too little to say, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from statistics import NormalDist, median
from typing import NamedTuple

MOST_POINTS = 240  # of a Theil-Sen estimate: some 29,000 pairs


class Slope(NamedTuple):
    """Units a second: the estimate and the ends of its confidence interval."""

    value: float
    low: float
    high: float


class Tooth(NamedTuple):
    """A rise from ``trough`` to ``peak`` and the fall to ``end``; ``at``: when the peak was."""

    at: float
    trough: float
    peak: float
    end: float


class Step(NamedTuple):
    """A rise that never came down: when, and how much."""

    at: float
    rise: float


class Span(NamedTuple):
    """Seconds: the estimate, and the earliest and the latest; ``high`` is None where it may never be."""

    value: float
    low: float
    high: float | None


def pair_slopes(times: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return the slopes between all pairs of points, sorted: their median is Theil's and Sen's estimate."""
    points = zip(times, values, strict=True)
    return sorted((b - a) / (later - at) for (at, a), (later, b) in combinations(points, 2) if later > at)


def theil_sen(times: Sequence[float], values: Sequence[float], confidence: float = 0.95) -> Slope | None:
    """Return the median of the slopes of all pairs, with its interval; None for fewer than five points.

    Theil 1950; Sen 1968, whose interval takes the slopes ranked (N -+ z * sd) / 2, with N pairs and
    sd^2 = n (n - 1) (2 n + 5) / 18, the variance of Kendall's S. Up to 29 % of the points may be anything. More than
    ``MOST_POINTS`` points are thinned evenly.
    """
    times, values = thinned(times, MOST_POINTS), thinned(values, MOST_POINTS)
    n = len(times)
    if n < 5:
        return None
    slopes = pair_slopes(times, values)
    if not slopes:
        return None
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, int((len(slopes) - reach) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + reach) / 2))
    return Slope(median(slopes), slopes[low], slopes[high])


def floors(times: Sequence[float], values: Sequence[float], window: float) -> tuple[list[float], list[float]]:
    """Return the lower envelope: the least value of each ``window`` seconds, and when it was.

    A saw-tooth whose period is shorter than the window leaves no trace in it; a level that rises does.
    """
    at: list[float] = []
    least: list[float] = []
    number = None
    for time, value in zip(times, values, strict=True):
        n = int((time - times[0]) / window)
        if n != number:
            at.append(time)
            least.append(value)
            number = n
        elif value < least[-1]:
            at[-1], least[-1] = time, value
    return at, least


def teeth(times: Sequence[float], values: Sequence[float], least: float) -> list[Tooth]:
    """Return the saw-teeth: rises and falls of at least ``least``, smaller ones counted as noise.

    Turning points with hysteresis (zigzag): a peak is one once the value has fallen ``least`` below it, a trough once
    it has risen ``least`` above it. A rise that hasn't ended gives no tooth.
    """
    found: list[Tooth] = []
    if not values:
        return found
    low = high = values[0]
    high_at = times[0]
    rising: bool | None = None
    trough = values[0]
    for time, value in zip(times, values, strict=True):
        if rising:
            if value > high:
                high, high_at = value, time
            elif value <= high - least:
                found.append(Tooth(high_at, trough, high, value))
                rising, low = False, value
        else:
            if value < low:
                low = value
                if found:
                    found[-1] = found[-1]._replace(end=value)
            if value >= low + least:
                rising, trough = True, low
                high, high_at = value, time
    return found


def retained(values: Sequence[float]) -> list[float]:
    """Return for each moment the least value from then to the end: what never came back. It never falls.

    Near the end it knows little of the future: leave out at least two periods of a saw-tooth there.
    """
    result = list(values)
    for n in range(len(result) - 2, -1, -1):
        if result[n + 1] < result[n]:
            result[n] = result[n + 1]
    return result


def steps(times: Sequence[float], levels: Sequence[float], least: float, within: float) -> list[Step]:
    """Return the steps of a level that never falls (``retained``): rises of ``least`` or more in ``within`` seconds.

    Rises that follow each other without a rest of ``within`` seconds are one rise; one that takes longer than three
    times that is a slope and no step.
    """
    found: list[Step] = []
    begun: float | None = None
    last = rise = 0.0
    for (_, before), (time, after) in pairwise(zip(times, levels, strict=True)):
        if after <= before:
            continue
        if begun is None or time - last > within:
            if begun is not None and rise >= least and last - begun <= 3 * within:
                found.append(Step(begun, rise))
            begun, rise = time, 0.0
        last = time
        rise += after - before
    if begun is not None and rise >= least and last - begun <= 3 * within:
        found.append(Step(begun, rise))
    return found


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of what is noise from one value to the next.

    1.4826 times the median absolute deviation of the differences (Hampel 1974), by sqrt(2), since a difference has the
    noise of two values. Teeth that rise over several samples leave it alone.
    """
    apart = [after - before for before, after in pairwise(values)]
    if not apart:
        return 0.0
    middle = median(apart)
    return 1.4826 * median(abs(each - middle) for each in apart) / math.sqrt(2)


def acceleration(times: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the second derivative, units a second squared; None where a half is too short.

    The slopes of the two halves (Theil-Sen), their difference by the time between the halves' centres.
    """
    if len(times) < 10:
        return None
    middle = (times[0] + times[-1]) / 2
    cut = next(n for n, time in enumerate(times) if time >= middle)
    first, second = theil_sen(times[:cut], values[:cut]), theil_sen(times[cut:], values[cut:])
    if first is None or second is None:
        return None
    return (second.value - first.value) / ((times[-1] - times[0]) / 2)


def exhaustion(level: float, capacity: float, slope: Slope) -> Span | None:
    """Return when ``level`` reaches ``capacity`` if ``slope`` goes on; None unless it surely rises (``low`` > 0)."""
    if slope.low <= 0 or level >= capacity:
        return None
    left = capacity - level
    return Span(left / slope.value, left / slope.high, left / slope.low)


def thinned(values: Sequence[float], most: int) -> Sequence[float]:
    """Return at most ``most`` of the values, evenly spaced, first and last among them."""
    if len(values) <= most:
        return values
    return [values[round(n * (len(values) - 1) / (most - 1))] for n in range(most)]
