"""Shapes in one GPU's series: saw-tooth, growth of the floor, staircase. Values are ratios of the device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from agent.estimators import acceleration, floors, noise, retained, steps, theil_sen
from agent.replay.result import Growth, Sawtooth, Staircase
from agent.signals.teeth import teeth

LEAST_TOOTH = 0.02  # of the device: smaller rises and falls are noise
LEAST_TEETH = 3
LEAST_STEP = 0.005
LEAST_STEPS = 4
WINDOWS = 60  # of the floor, over the whole log
PERIODS = 3  # of a saw-tooth that a window has to hold
TAIL = 2.5  # periods of a saw-tooth at the end, of which it isn't known yet whether they come down
LEAST_WINDOWS = 12  # there are, one of them cut at the end
FLOATS = 4
STEEP = 0.8  # of the rise has to be in steps for a staircase


def sawtooth(times: Sequence[float], values: Sequence[float]) -> Sawtooth | None:
    """Return the saw-tooth; None where nothing rises and falls again and again."""
    # White noise of n values spans some eight standard deviations.
    found = teeth(times, values, max(LEAST_TOOTH, 8 * noise(values)))
    if len(found) < LEAST_TEETH:
        return None
    return Sawtooth(
        teeth=len(found),
        amplitude=median(tooth.peak - tooth.end for tooth in found),
        floor=median(tooth.end for tooth in found),
        peak=median(tooth.peak for tooth in found),
        period_seconds=median(later.peak_at - earlier.peak_at for earlier, later in pairwise(found)),
    )


def window(span: float, interval: float, saw: Sawtooth | None) -> float:
    """Return how long a window of the floor is: several teeth, but never so long that too few windows are left."""
    return min(max(span / WINDOWS, 5 * interval, PERIODS * saw.period_seconds if saw else 0.0), span / LEAST_WINDOWS)


def growth(times: Sequence[float], values: Sequence[float], each: float, saw: Sawtooth | None) -> Growth | None:
    """Return the growth of the floor, taken in windows of ``each`` seconds; None for a log of too few of them."""
    at, low = floors(times, values, each)
    # The last window may be a moment only, and then it is no floor.
    at, low = at[:-1], low[:-1]
    if len(at) < LEAST_WINDOWS - 2:
        return None
    half = len(at) // 2
    whole, last = theil_sen(at, low), theil_sen(at[half:], low[half:])
    if whole is None or last is None:
        return None
    second = acceleration(at, low)
    known = _known(times, values, saw)
    kept = retained(known)
    middle = kept[_index(times, (times[0] + times[-1]) / 2, len(kept))]
    return Growth(
        per_minute=60 * whole.value,
        low=60 * whole.low,
        high=60 * whole.high,
        last_half_per_minute=60 * last.value,
        last_half_low=60 * last.low,
        acceleration_per_minute2=None if second is None else 3600 * second,
        retained=kept[-1] - kept[0],
        last_half_retained=kept[-1] - middle,
    )


def staircase(
    times: Sequence[float], values: Sequence[float], interval: float, saw: Sawtooth | None
) -> Staircase | None:
    """Return the staircase: steps over the whole log, the last third included, that never come down.

    Steps only at the beginning are a start; steps only at the end may still come down.
    """
    # A rise that ends with the log may come down in the next moment: it is left out.
    known = _known(times, values, saw)
    kept = retained(known)
    span = times[len(kept) - 1] - times[0]
    found = steps(times[: len(kept)], kept, LEAST_STEP, max(3 * interval, span / 200))
    if len(found) < LEAST_STEPS or kept[-1] <= kept[0]:
        return None
    every = median(later.at - earlier.at for earlier, later in pairwise(found))
    if saw is not None and every < 2 * saw.period_seconds:
        return None  # a slope under a saw-tooth: each trough is a little higher
    # Troughs lie on the treads; where they float above, the level wanders, and what never came back is chance.
    rise = median(step.rise for step in found)
    at, low = floors(times[: len(kept)], values[: len(kept)], window(span, interval, saw))
    above = median(value - kept[_index(times, time, len(kept))] for time, value in zip(at, low, strict=True))
    if above > rise / FLOATS:
        return None
    thirds = {min(2, int(3 * (step.at - times[0]) / span)) for step in found}
    if thirds != {0, 1, 2} or sum(step.rise for step in found) < STEEP * (kept[-1] - kept[0]):
        return None
    return Staircase(
        steps=len(found),
        rise=rise,
        every_seconds=every,
    )


def _known(times: Sequence[float], values: Sequence[float], saw: Sawtooth | None) -> Sequence[float]:
    """Return the values without the end, of which the future is not known; the future of the rest includes it."""
    span = times[-1] - times[0]
    tail = max(span / 20, TAIL * saw.period_seconds if saw else 0.0)
    cut = max(2, _index(times, times[-1] - tail, len(times)))
    return [*values[: cut - 1], min(values[cut - 1 :])]


def _index(times: Sequence[float], time: float, end: int) -> int:
    return next((n for n in range(end) if times[n] >= time), end - 1)
