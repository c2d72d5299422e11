"""Estimators of slopes, floors and staircases. Pure functions of times (seconds) and values.

Times rise strictly and values have any unit; where a function needs a least size, it has the values' unit. Gaps need
no filling: each function uses the times. None means that there is too little to say, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, median
from typing import NamedTuple

MOST_POINTS = 240  # of a Theil-Sen estimate: some 29,000 pairs
MOST_SPREAD = 4.0
CREEPS = 0.125


class Slope(NamedTuple):
    """Units a second: the estimate and the ends of its confidence interval."""

    value: float
    low: float
    high: float


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
    slopes: list[float] = []
    for n, (at, a) in enumerate(zip(times, values, strict=True), start=1):
        slopes += [(b - a) / (later - at) for later, b in zip(times[n:], values[n:], strict=True) if later > at]
    slopes.sort()
    return slopes


def theil_sen(
    times: Sequence[float], values: Sequence[float], confidence: float = 0.95, *, spread: float = 1.0, least: int = 5
) -> Slope | None:
    """Return the median of the slopes of all pairs, with its interval; None for fewer than ``least`` points.

    Theil 1950; Sen 1968, whose interval takes the slopes ranked (N -+ z * sd) / 2, with N pairs and
    sd^2 = n (n - 1) (2 n + 5) / 18, the variance of Kendall's S. Up to 29 % of the points may be anything. More than
    ``MOST_POINTS`` points are thinned evenly. ``spread`` widens the interval, see :func:`spread_of`.
    """
    times, values = thinned(times, MOST_POINTS), thinned(values, MOST_POINTS)
    n = len(times)
    if n < least:
        return None
    return _ranked(pair_slopes(times, values), n * (n - 1) * (2 * n + 5) / 18, confidence, spread)


def robust_slope(times: Sequence[float], values: Sequence[float], *, least: int = 5) -> Slope | None:
    """Return :func:`theil_sen`'s estimate with its interval widened for what wanders (:func:`spread_of`)."""
    times, values = thinned(times, MOST_POINTS), thinned(values, MOST_POINTS)
    n = len(times)
    if n < least:
        return None
    slopes = pair_slopes(times, values)
    if not slopes:
        return None
    return _ranked(slopes, n * (n - 1) * (2 * n + 5) / 18, 0.95, spread_of(times, values, median(slopes)))


def matched(
    times: Sequence[float],
    values: Sequence[float],
    beside: Sequence[float],
    confidence: float = 0.95,
    *,
    spread: float = 1.0,
    least: int = 8,
) -> Slope | None:
    """Return the slope of ``values`` at equal ``beside``: what does not go up and down with it.

    Only points whose ``beside`` is the same (within 5 %, and then ``values`` are taken as proportional to it) are
    compared: the seasonal Kendall slope, with ``beside`` in the place of the season (Hirsch, Slack and Smith 1982).
    None for fewer than ``least`` points that can be compared, or where they cover less than half of the time.
    """
    if not times:
        return None
    per_unit = median(values) / (median(beside) or 1.0)
    strata: dict[int, tuple[list[float], list[float], float]] = {}
    for time, value, level in zip(times, values, beside, strict=True):
        key = round(level) if level < 10 else 10 + round(math.log(level / 10) / math.log(1.1))
        at, kept, first = strata.setdefault(key, ([], [], level))
        at.append(time)
        kept.append(value - per_unit * (level - first))
    slopes: list[float] = []
    variance = 0.0
    points, begun, ended = 0, times[-1], times[0]
    for at, kept, _ in strata.values():
        n = len(at)
        if n < 2:
            continue
        slopes += pair_slopes(at, kept)
        variance += n * (n - 1) * (2 * n + 5) / 18
        points += n
        begun, ended = min(begun, at[0]), max(ended, at[-1])
    if points < least or ended - begun < (times[-1] - times[0]) / 2:
        return None
    slopes.sort()
    return _ranked(slopes, variance, confidence, spread)


def _ranked(slopes: list[float], variance: float, confidence: float, spread: float) -> Slope | None:
    if not slopes:
        return None
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance) * spread
    low = max(0, int((len(slopes) - reach) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + reach) / 2))
    return Slope(median(slopes), slopes[low], slopes[high])


def spread_of(times: Sequence[float], values: Sequence[float], slope: float) -> float:
    """Return by what an interval must be widened because the values are not independent: 1 to ``MOST_SPREAD``.

    sqrt((1 + r) / (1 - r)) with r the correlation of what is left of one value beside a line of ``slope`` with that of
    the next, corrected for its bias in few values (Kendall 1954): the effective number of points. What wanders, and a
    tooth of which only a part is seen, looks like a slope otherwise.
    """
    n = len(times)
    if n < 5:
        return MOST_SPREAD
    left = [value - slope * time for time, value in zip(times, values, strict=True)]
    middle = sum(left) / n
    left = [each - middle for each in left]
    power = sum(each * each for each in left)
    # What is left of a straight line is rounding and has no say.
    if power <= 1e-18 * sum(value * value for value in values):
        return 1.0
    r = sum(a * b for a, b in pairwise(left)) / power
    r = min(0.99, max(0.0, r + (1 + 4 * r) / n))
    return min(MOST_SPREAD, math.sqrt((1 + r) / (1 - r)))


def without_steps(values: Sequence[float], most: int = 2) -> list[float]:
    """Return the values with up to ``most`` jumps taken out, so that a step does not pass for a slope.

    A jump is eight times what is usual from one value to the next (median absolute deviation). Where there are more
    than ``most`` they are how this series moves, and all stay.
    """
    apart = [after - before for before, after in pairwise(values)]
    if len(apart) < 5:
        return list(values)
    middle = median(apart)
    usual = 1.4826 * median(abs(each - middle) for each in apart)
    most_usual = max(8 * usual, 1e-9 * max(abs(value) for value in values))
    jumps = {n for n, each in enumerate(apart) if abs(each - middle) > most_usual}
    if not jumps or len(jumps) > most:
        return list(values)
    level = values[0]
    result = [level]
    for n, each in enumerate(apart):
        level += middle if n in jumps else each
        result.append(level)
    return result


def without_jumps(values: Sequence[float], share: float, most: int = 3, beside: int = 3) -> list[float]:
    """Return the values with up to ``most`` jumps taken out, each at least ``share`` of what they rise beside the ones
    before it.

    A jump: each of the ``beside`` values after it lies above each of as many before it, by more than these differ among
    themselves. Noise makes none, and no slope does, whether it bends or not. It is as high as the middle values on
    either side lie apart: by the nearest ones some of it would stay, and look like a slope.
    """
    left = list(values)
    begins: list[int] = []
    for _ in range(most):
        jump, begin = 0.0, 0
        for n in range(1, len(left)):
            before, after = left[max(0, n - beside) : n], left[n : n + beside]
            lowest, highest = min(after), max(before)
            gap = lowest - highest
            if gap > jump and gap > max(after) - lowest + highest - min(before):
                jump, begin = gap, n
        if not begin or jump < share * (max(left) - min(left)):
            break
        left[begin:] = [value - jump for value in left[begin:]]
        begins.append(begin)
    result, edges = list(values), [0, *sorted(set(begins)), len(values)]
    for last, begin, end in zip(edges, edges[1:], edges[2:], strict=False):
        high = median(values[begin : min(end, begin + beside)])
        jump = high - median(values[max(last, begin - beside) : begin])
        result[begin:] = [value - jump for value in result[begin:]]
    return result


def climb(times: Sequence[float], values: Sequence[float]) -> Slope | None:
    """Return the slope of a count that comes in lumps and never falls; None where it falls or came in fewer than three.

    What came over the time; ``low`` leaves out the largest lump, ``high`` has it twice.
    """
    lumps = [after - before for before, after in pairwise(values)]
    if not lumps or min(lumps) < 0 or sum(lump > 0 for lump in lumps) < 3:
        return None
    came, most, span = sum(lumps), max(lumps), times[-1] - times[0]
    return Slope(came / span, (came - most) / span, (came + most) / span)


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

    Rises that follow each other without a rest of ``within`` seconds, or from each value to the next, are one rise; one
    that takes longer than three times ``within`` is a slope and no step. Rises of less than ``CREEPS`` times ``least``
    are rest: what never came back creeps up with noise.
    """
    found: list[Step] = []
    begun: float | None = None
    last = rise = 0.0
    for (at, before), (time, after) in pairwise(zip(times, levels, strict=True)):
        if after - before <= CREEPS * least:
            continue
        if begun is None or (time - last > within and at != last):
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


def slows_to(times: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the slope at the end as a share of that at the beginning, where a rise surely slows down.

    The parabola through the points (least squares); sure where its curvature is below zero by two standard errors,
    widened for what wanders. None where it does not slow down, cannot be told, or nothing rises.
    """
    n = len(times)
    span = times[-1] - times[0] if n else 0.0
    if n < 8 or span <= 0:
        return None
    # A line and a bow that are orthogonal on these points (Gram and Schmidt), so that each has its own coefficient.
    x = [2 * (time - times[0]) / span - 1 for time in times]
    middle = sum(x) / n
    line = [each - middle for each in x]
    power = sum(each * each for each in line)
    square = [each * each for each in line]
    mean_square = sum(square) / n
    lean = sum(a * b for a, b in zip(square, line, strict=True)) / power
    bow = [a - mean_square - lean * b for a, b in zip(square, line, strict=True)]
    bow_power = sum(each * each for each in bow)
    level = sum(values) / n
    slope = sum(a * value for a, value in zip(line, values, strict=True)) / power
    curve = sum(a * value for a, value in zip(bow, values, strict=True)) / bow_power
    left = [v - level - slope * a - curve * b for v, a, b in zip(values, line, bow, strict=True)]
    error = math.sqrt(sum(each * each for each in left) / (n - 3) / bow_power) * spread_of(times, left, 0.0)
    first, last = (slope + curve * (2 * end - lean) for end in (line[0], line[-1]))
    if first <= 0 or curve >= -2 * error:
        return None
    return max(0.0, last / first)


def detached(values: Sequence[float], beside: Sequence[float], times: Sequence[float]) -> list[float]:
    """Return ``values`` less what goes up and down with ``beside``; the slope over time stays in.

    Least squares on time and ``beside``, of which only the part of ``beside`` is taken away.
    """
    n = len(values)
    t, b, v = (
        [each - middle for each in series]
        for series, middle in ((times, sum(times) / n), (beside, sum(beside) / n), (values, sum(values) / n))
    )
    tt, bb, tb = (sum(x * y for x, y in zip(p, q, strict=True)) for p, q in ((t, t), (b, b), (t, b)))
    tv, bv = (sum(x * y for x, y in zip(p, v, strict=True)) for p in (t, b))
    rank = tt * bb - tb * tb
    # Where both rise together there is no telling them apart, and all of it is taken for what is explained.
    each = (tt * bv - tb * tv) / rank if rank > 1e-3 * tt * bb else (bv / bb if bb > 0 else 0.0)
    return [value - max(0.0, each) * (level - beside[0]) for value, level in zip(values, beside, strict=True)]


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
