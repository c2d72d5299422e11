"""The slow estimator: what has come over hours and days and stays. It never forecasts, and looks at floors only.

It looks at the time since the floor last was where it began (a plateau before the rise says nothing about the rise).
It is a leak where both that time and its later half rise surely, the rise does not slow down (a cache that fills
does), what came stayed, and the level has not been there before (a day's cycle has). Pure Python: some 40 floors, once
a minute in the first hours, more seldom the longer it has been watched: what comes over days is no surer each minute.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median, pstdev

import msgspec

from agent.estimators import (
    Slope,
    Step,
    detached,
    floors,
    matched,
    noise,
    retained,
    robust_slope,
    slows_to,
    steps,
    without_jumps,
)
from agent.signals.kept import KeptTrack, Mark
from agent.signals.tiers import Points, Tiers
from agent.signals.types import Slow

FLOORS = 40
LEAST_FLOORS = 8
FLOOR_SECONDS = 300.0
LEAST_SECONDS = 1200.0
RISEN = 0.05  # of the rise: below that it had not begun
AGREE = 0.5  # of the whole time's slope: what the later half must have
SLOWS = 0.8  # of its slope at the beginning: what has less at the end levels off
RECENT = 3  # floors
ABOUT = 0.1  # of the rise
WANDERS = 4.0  # times what is left beside the slope: a rise of less is chance
EQUAL_SPREAD = 2.0
STAYED = 0.5  # of what came
MOST_STAYED = 3.0  # a rise that the slope does not make is a step
NOISES = 5.0  # what is left of a rise beside its jumps must be so many times the noise
JUMP = 0.45  # of the rise: what comes at once is a step, and what is left beside it has to be a leak

SAID_SECONDS, STEPS_SAID_SECONDS = 540.0, 240.0  # for so long it must have said the same
EVERY_SECONDS = 60.0
PARTS = 300.0  # of the time that has been watched: likewise
MOST_EVERY_SECONDS = 900.0
FORESEEN_SECONDS = 300.0  # between two estimates: what is longer than that and was not meant is a gap
EQUAL_EVERY = 5  # estimates: what does not rise is looked at so often for what its load hides

# A staircase.
LEAST_STEPS = 4
IN_STEPS = 0.8  # of the rise
FLOATS = 4.0
STEP_NOISES = 6.0
LATER = 0.33  # of the rise: in the later half
TAIL = 0.05  # of the time at the end: whether that comes down again isn't known


class SlowTrack:
    """One number's slow estimate, anew each minute, or each ``PARTS``th of what has been watched once that is longer.

    ``settle_seconds``: how long a rise must last to be called a leak; ``least_ratio``: of the whole, how much must have
    come. ``exact``: the number is of what must not be there at all, such as orphaned blocks, so that there is no cache
    that fills and no cycle. ``beside``: values come with another that explains them (requests that run): ``at_equal``
    is the estimate of what does not go up and down with that; ``rising``: it is made only while the number rises.
    """

    def __init__(
        self,
        *,
        settle_seconds: float = 3600.0,
        least_ratio: float = 0.01,
        exact: bool = False,
        offset: float = 0.0,
        rising: bool = False,
    ) -> None:
        self._settle = settle_seconds
        self._least = least_ratio
        self._exact = exact
        self._rising = rising
        self._offset = offset  # so that not all numbers of a node are estimated in the same moment
        self.clear()

    def clear(self) -> None:
        """Forget all: after a restart, or when the whole has changed."""
        self._tiers = Tiers()
        self._due: float | None = None
        self._every = EVERY_SECONDS
        self._at: float | None = None  # of the last estimate
        self._number = 0
        self._said: list[float | None] = [None, None]  # for how many seconds each has said the same
        self.slow: Slow | None = None
        self.at_equal: Slow | None = None

    def kept(self, instance: tuple[Mark, ...], begun: float) -> KeptTrack:
        """Return what the estimate rests on, to be kept over a restart of the agent."""
        first, second = self._said
        return KeptTrack(instance=instance, begun=begun, tiers=self._tiers.kept(), said_seconds=(first, second))

    def restore(self, kept: KeptTrack, now: float) -> None:
        """Go on from what an agent before this one has kept; nothing is known where that can't be used."""
        self.clear()
        if self._tiers.restore(kept.tiers, now):
            self._said = [None if each is None or not each >= 0 else each for each in kept.said_seconds]

    def add(self, now: float, value: float, whole: float, beside: float | None = None) -> None:
        """Take a value; ``whole`` is what rates are shares of."""
        self._tiers.add(now, value, -1.0 if beside is None else beside)
        if self._due is None:
            self._due = now + 60.0 + self._offset
        if now < self._due or whole <= 0:
            return
        points = self._tiers.points()
        apart = 0.0 if self._at is None else min(now - self._at, max(self._every, FORESEEN_SECONDS))
        slow = self._estimate(points.times, points.values, whole)
        if beside is None:
            at_equal = None
        elif _says(slow) or (not self._rising and (self._said[1] is not None or self._number % EQUAL_EVERY == 0)):
            at_equal = self._at_equal(points, whole)
        else:
            at_equal = None if self._rising else self.at_equal
        if beside is not None and not _says(at_equal):
            slow = _quiet(slow)  # it rises, and what explains it rises with it
        self.slow, self.at_equal = self._kept_up(0, slow, apart), self._kept_up(1, at_equal, apart)
        # What has begun to say something is looked at each minute until it has said it for long enough.
        sure = _says(slow) == _says(self.slow) and _says(at_equal) == _says(self.at_equal)
        seldom = min(MOST_EVERY_SECONDS, (points.times[-1] - points.times[0]) / PARTS)
        self._every = max(EVERY_SECONDS, seldom) if sure else EVERY_SECONDS
        self._at, self._due = now, now + self._every
        self._number += 1

    def _kept_up(self, which: int, slow: Slow | None, apart: float) -> Slow | None:
        """Return the estimate, quiet until it has said the same for some minutes: what wanders looks like a leak now
        and then. ``apart``: seconds since the last one.
        """
        before = self._said[which]
        said = self._said[which] = None if not _says(slow) else 0.0 if before is None else before + apart
        needed = STEPS_SAID_SECONDS if slow is not None and slow.staircase else SAID_SECONDS
        return slow if self._exact or (said is not None and said >= needed) else _quiet(slow)

    def _at_equal(self, points: Points, whole: float) -> Slow | None:
        times, values, beside = (
            [each for each, known in zip(series, points.beside, strict=True) if known >= 0] for series in points
        )
        if len(times) < LEAST_FLOORS:
            return None
        slow = self._estimate(times, detached(values, beside, times), whole)
        if not _says(slow) or slow is None:
            return slow
        # A second opinion, that takes nothing for proportional: of moments at which it was equal.
        step = max(1, len(times) // 120)
        slope = matched(times[::step], values[::step], beside[::step], spread=EQUAL_SPREAD)
        agrees = slope is not None and slope.low > 0 and slope.value >= AGREE * slow.per_hour * whole / 3600
        return slow if agrees else _quiet(slow)

    def _estimate(self, times: Sequence[float], values: Sequence[float], whole: float) -> Slow | None:
        if len(times) < LEAST_FLOORS or times[-1] - times[0] < LEAST_SECONDS:
            return None
        # What was high in the last minutes may come down yet.
        end = min(values[bisect_left(times, times[-1] - FLOOR_SECONDS) :])
        kept = retained(values)
        high = bisect_left(kept, end)
        kept[high:] = [end] * (len(kept) - high)
        rise = kept[-1] - kept[0]
        if rise <= (0.0 if self._exact else 0.001 * whole) or (not self._exact and rise <= 2 * noise(values)):
            return _flat(times)
        begin = bisect_left(kept, kept[0] + RISEN * rise) - 1
        begin = max(0, min(begin, len(times) - 2))
        earlier, earlier_values = times[:begin], values[:begin]
        times, values, kept = times[begin:], values[begin:], kept[begin:]
        span = times[-1] - times[0]
        each = max(FLOOR_SECONDS if span >= LEAST_FLOORS * FLOOR_SECONDS else 60.0, span / FLOORS)
        at, low = floors(times, values, each)
        if len(at) < LEAST_FLOORS:
            return _flat(times)
        half = len(at) // 2
        steady = low if self._exact else without_jumps(low, JUMP)
        whole_slope, later = _slope(at, steady), _slope(at[half:], steady[half:])
        made, end = whole_slope.value * span, min(steady[-RECENT:])
        stayed = end - steady[0]
        # It begins at a low floor, or it would not begin there: of several the middle one says how much has come.
        came = stayed if self._exact else min(made, end - median(steady[:RECENT]))
        seen = not self._exact and _was_there(earlier, earlier_values, low, each)
        ratio = min(1.0, max(0.0, stayed / made)) if made > 0 else 0.0
        leaks = (
            whole_slope.low > 0
            and later.low > 0
            and later.value >= AGREE * whole_slope.value
            and STAYED * made <= stayed <= MOST_STAYED * made
            and span >= self._settle
            and came >= self._least * whole
            and (self._exact or (not seen and stayed >= WANDERS * _wander(at, steady, whole_slope.value)))
            and (self._exact or not _levels_off(at, steady))
            and (self._exact or _rises_on(at, low, steady, AGREE * whole_slope.value, stayed >= NOISES * noise(values)))
        )
        stairs = [] if seen else self._staircase(times, values, whole, at, low)
        rate = _climbs(stairs, span) if stairs and not leaks else whole_slope
        return Slow(
            per_hour=3600 * rate.value / whole,
            low=3600 * rate.low / whole,
            high=3600 * rate.high / whole,
            later_per_hour=3600 * later.value / whole,
            seconds=span,
            retained_ratio=ratio,
            leaks=leaks,
            staircase=len(stairs),
        )

    def _staircase(
        self, times: Sequence[float], values: Sequence[float], whole: float, at: Sequence[float], low: Sequence[float]
    ) -> list[Step]:
        """Return the steps of a staircase; none where it is none.

        Steps that never come down, over the whole time, that make most of the rise. Troughs lie on the treads: where
        they float above, the level wanders, and what never came back is chance.
        """
        span = times[-1] - times[0]
        cut = bisect_left(times, times[-1] - TAIL * span)
        if cut < LEAST_FLOORS:
            return []
        known = [*values[: cut - 1], min(values[cut - 1 :])]
        kept = retained(known)
        rise = kept[-1] - kept[0]
        least = max(0.005 * whole if not self._exact else 1.0, STEP_NOISES * noise(values), 0.02 * rise)
        found = steps(times[: len(kept)], kept, least, max(150.0, span / 200))
        if len(found) < LEAST_STEPS or rise <= 0:
            return []
        usual = median(step.rise for step in found)
        above = median(
            value - kept[min(bisect_left(times, time), len(kept) - 1)] for time, value in zip(at, low, strict=True)
        )
        thirds = {min(2, int(3 * (step.at - times[0]) / span)) for step in found}
        came, needed = sum(step.rise for step in found), 0.0 if self._exact else self._least * whole
        if above > usual / FLOATS or len(thirds) < 3 or came < max(IN_STEPS * rise, needed):
            return []
        if sum(step.rise for step in found if step.at - times[0] > span / 2) < LATER * rise:
            return []
        return found


def _climbs(found: Sequence[Step], span: float) -> Slope:
    """Return what steps make over the time, with the largest of them less and more."""
    came, most = sum(step.rise for step in found), max(step.rise for step in found)
    return Slope(came / span, (came - most) / span, (came + most) / span)


def _says(slow: Slow | None) -> bool:
    return slow is not None and (slow.leaks or slow.staircase > 0)


def _quiet(slow: Slow | None) -> Slow | None:
    return msgspec.structs.replace(slow, leaks=False, staircase=0) if slow is not None and _says(slow) else slow


def _flat(times: Sequence[float]) -> Slow:
    return Slow(
        per_hour=0.0,
        low=0.0,
        high=0.0,
        later_per_hour=0.0,
        seconds=times[-1] - times[0],
        retained_ratio=0.0,
        leaks=False,
    )


def _slope(times: Sequence[float], values: Sequence[float]) -> Slope:
    return robust_slope(times, values, least=4) or Slope(0.0, 0.0, 0.0)


def _levels_off(times: Sequence[float], values: Sequence[float]) -> bool:
    left = slows_to(times, values)
    return left is not None and left < SLOWS


def _rises_on(times: Sequence[float], low: Sequence[float], steady: Sequence[float], least: float, sure: bool) -> bool:
    """Return whether a rise is more than its jumps: what is left is ``sure`` to be no noise, and goes on after the last
    of them by ``least`` a second, where that is long enough ago to be seen. True where nothing has jumped.

    A rise begins where the floor last was low, by chance as well: over that and a jump noise alone may seem to rise.
    """
    taken = [before - after for before, after in zip(low, steady, strict=True)]
    rounding = 1e-6 * (max(low) - min(low))
    # The last floor is not over yet: it may have seen nothing but the top of what goes up and down.
    last = max((n for n in range(1, len(taken) - 1) if taken[n] - taken[n - 1] > rounding), default=None)
    if last is None:
        return True
    slope = _slope(times[last:], steady[last:])
    return sure and (len(taken) - last < LEAST_FLOORS or (slope.low > 0 and slope.value >= least))


def _was_there(times: Sequence[float], values: Sequence[float], low: Sequence[float], each: float) -> bool:
    """Return whether the floor has been about as high before, and came down again."""
    if not times:
        return False
    now = max(low[-RECENT:])
    return max(floors(times, values, each)[1]) >= now - ABOUT * (now - low[0])


def _wander(times: Sequence[float], values: Sequence[float], slope: float) -> float:
    """Return the standard deviation of what is left of the floors beside the slope."""
    return pstdev([value - slope * time for time, value in zip(times, values, strict=True)])
