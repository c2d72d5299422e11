"""The fast estimator: how a number rises now, over one to three minutes. It forecasts minutes, never hours.

The floor of five-second bins, its slope by Theil and Sen with an interval that is widened for what wanders; jumps are
taken out first. A rise inside what has come and gone before in the last half hour is a tooth: then the slope is that of
the troughs. Pure Python: a window has 36 points, and numpy would cost the agent a third of its memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agent.estimators import Slope, climb, noise, robust_slope, theil_sen, without_steps
from agent.signals.series import Bins
from agent.signals.teeth import Saw, Teeth
from agent.signals.types import Rate

BIN_SECONDS = 5.0
WINDOW_SECONDS = 180.0
LEAST_SECONDS = 60.0
LEAST_POINTS = 10
LEAST_SAMPLES = 12
KEEP_SECONDS = 900.0  # where samples come seldom, a window is longer
LEAST_TOOTH = 0.004  # of the whole: smaller rises and falls are noise
NOISES = 6.0
LEAST_RISE = 0.005  # of the whole: a rise that is less over a window is not sure
NOISY_RISE = 3.0  # times the noise: likewise
LEAST_TROUGHS = 4
MANY_TROUGHS = 6
PLAIN_TROUGHS = 0.10  # of the amplitude: what few troughs have to rise
TROUGH_SPREAD = 1.5
BEATS = 8.0  # times what a tooth rises from one sample to the next, on average

TOO_SHORT = "watched for too short a time"
IN_TEETH = "it rises and falls, and has been seen to do so too few times to tell what stays"


def rate_of(times: Sequence[float], values: Sequence[float], whole: float, least: float) -> Rate | None:
    """Return the slope of ``values`` as a share of ``whole`` a minute; None for too few points or no whole.

    A rise of less than ``least`` of the whole over the time is not sure.
    """
    if whole <= 0 or len(times) < 5:
        return None
    span = times[-1] - times[0]
    apart = max(values) - min(values)
    if apart < least * whole:
        # Whatever the slope is, it is within this; no need to look at all pairs.
        slope = Slope((values[-1] - values[0]) / span, -apart / span, apart / span)
        return _rate(slope, whole, span, len(times))
    steady = robust_slope(times, without_steps(values))
    if steady is None:
        return None
    rate = _rate(steady, whole, span, len(times))
    return unsure(rate) if steady.value * span < least * whole else rate


def _rate(slope: Slope, whole: float, span: float, samples: int) -> Rate:
    each = 60 / whole
    return Rate(
        per_minute=each * slope.value, low=each * slope.low, high=each * slope.high, seconds=span, samples=samples
    )


def unsure(rate: Rate) -> Rate:
    """Return ``rate`` with an interval that has zero in it."""
    return Rate(
        per_minute=rate.per_minute,
        low=min(rate.low, 0.0),
        high=max(rate.high, 0.0),
        seconds=rate.seconds,
        samples=rate.samples,
    )


class Fast:
    """Growth of one number. Everything it says is of the last bin that was closed; ``reason``: why ``rate`` is None."""

    def __init__(self) -> None:
        self._bins = Bins(BIN_SECONDS, KEEP_SECONDS)
        self._teeth = Teeth()
        self.clear()

    def clear(self) -> None:
        """Forget all: after a gap, a restart, or when the whole has changed."""
        self._bins.clear()
        self._teeth.clear()
        self.rate: Rate | None = None
        self.acceleration: float | None = None
        self.doubling_seconds: float | None = None
        self.saw: Saw | None = None
        self.crest: float | None = None
        self.in_teeth = False
        self.reason = TOO_SHORT

    def add(self, now: float, value: float, whole: float, period: float) -> None:
        """Take a value; ``whole`` is what rates are shares of, ``period`` how often values come."""
        if self._bins.add(now, value):
            self._estimate(now, whole, period)

    def _estimate(self, now: float, whole: float, period: float) -> None:
        times, values = self._bins.since(now - max(WINDOW_SECONDS, LEAST_SAMPLES * period))
        jitter = noise(values)
        self._teeth.add(times[-1], values[-1], max(LEAST_TOOTH * whole, NOISES * jitter))
        self.saw = self._teeth.saw()
        self.acceleration = self.doubling_seconds = None
        self.in_teeth = self.saw is not None and self._teeth.due(now, values[-1], self.saw)
        if self.in_teeth and self.saw is not None:
            self.crest = self.saw.highest
            self.rate, self.reason = self._of_troughs(self.saw, whole, period)
            return
        begun = self._teeth.broke_out_at() if self.saw is not None else None
        if begun is not None and times[0] < begun:
            # The teeth before this rise say nothing about it.
            keep = next((n for n, time in enumerate(times) if time >= begun), 0)
            times, values = times[keep:], values[keep:]
        self.crest = max(values)
        if len(times) < LEAST_POINTS or times[-1] - times[0] < LEAST_SECONDS - BIN_SECONDS:
            self.rate, self.reason = None, TOO_SHORT
            return
        self.rate = rate_of(times, values, whole, max(LEAST_RISE, NOISY_RISE * jitter / whole) if whole > 0 else 0.0)
        self.reason = "" if self.rate else TOO_SHORT
        if self.rate is not None:
            self._accelerates(times, without_steps(values), whole)

    def _of_troughs(self, saw: Saw, whole: float, period: float) -> tuple[Rate | None, str]:
        times, levels = self._teeth.troughs()
        slope = theil_sen(times, levels, spread=TROUGH_SPREAD, least=LEAST_TROUGHS)
        if slope is None or whole <= 0:
            return None, IN_TEETH
        rate = _rate(slope, whole, times[-1] - times[0], len(times))
        rise = slope.value * (times[-1] - times[0])
        # A trough is seen up to a sample too late, and beats of the two periods look like a slope.
        seen = BEATS * saw.amplitude * min(1.0, period / (saw.period_seconds or period))
        least = max(LEAST_RISE * whole, seen, NOISY_RISE * noise(levels))
        if len(times) < MANY_TROUGHS:
            least = max(least, PLAIN_TROUGHS * saw.amplitude)
        return (unsure(rate) if rise < least else rate), ""

    def _accelerates(self, times: Sequence[float], values: Sequence[float], whole: float) -> None:
        """Compare the slopes of the two halves; zero where their intervals overlap: it can't be told from steady."""
        if len(times) < 2 * LEAST_POINTS:
            return
        cut = len(times) // 2
        if max(values) - min(values) < LEAST_RISE * whole:
            self.acceleration = 0.0
            return
        first, second = robust_slope(times[:cut], values[:cut]), robust_slope(times[cut:], values[cut:])
        if first is None or second is None:
            return
        apart = (times[-1] - times[0]) / 2
        if first.low <= second.high and second.low <= first.high:
            self.acceleration = 0.0
            return
        self.acceleration = 3600 * (second.value - first.value) / apart / whole
        if second.value > first.value and second.value > 0:
            ratio = second.value / first.value if first.value > 0 else 2.0
            self.doubling_seconds = apart * math.log(2) / math.log(max(ratio, 1.0001))


class Exact:
    """Growth of a count that is exact and comes in lumps, such as orphaned blocks: five minutes, no noise in it."""

    BIN_SECONDS = 10.0
    WINDOW_SECONDS = 300.0

    def __init__(self) -> None:
        self._bins = Bins(self.BIN_SECONDS, self.WINDOW_SECONDS)
        self.rate: Rate | None = None

    def clear(self) -> None:
        """Forget all."""
        self._bins.clear()
        self.rate = None

    def add(self, now: float, value: float, whole: float) -> None:
        """Take a value."""
        if not self._bins.add(now, value):
            return
        times, values = list(self._bins.times), list(self._bins.lows)
        if len(times) < 5 or times[-1] - times[0] < LEAST_SECONDS - self.BIN_SECONDS or whole <= 0:
            self.rate = None
            return
        slope = climb(times, values)
        if slope is not None:
            self.rate = _rate(slope, whole, times[-1] - times[0], len(times))
            return
        self.rate = rate_of(times, values, whole, 1 / whole)
