"""What held blocks grow by that running requests do not explain, for an engine of which only a page is known.

The slope of the floor of held blocks at equal numbers of running requests, over up to a quarter of an hour. Requests
that are there for the whole of it grow by what they generate, so the time must be several times that in which all
tokens in the pool are made anew; and what slows down is a pool that finds its level: of the whole time and its later
half the lesser counts.
"""

from __future__ import annotations

from agent.estimators import detached, matched, slows_to, spread_of
from agent.signals.fast import unsure
from agent.signals.series import Bins
from agent.signals.types import Rate

BIN_SECONDS = 15.0
KEEP_SECONDS = 900.0
LEAST_SECONDS = 300.0
RENEWALS = 5.0
SLOWS = 0.5  # of its slope at the beginning: what has less at the end levels off
LEAST_RISE = 0.01  # of the pool, over the time

TOO_SHORT = "watched for too short a time"
TOO_LONG_LIVED = "requests may live longer than has been watched"
NEVER_EQUAL = "the number of running requests is never the same for long enough"


class Equal:
    """Growth at equal running requests; ``reason``: why there is no ``rate``."""

    def __init__(self) -> None:
        self._bins = Bins(BIN_SECONDS, KEEP_SECONDS)
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._bins.clear()
        self.rate: Rate | None = None
        self.reason = TOO_SHORT

    def add(self, now: float, held: float, running: float, whole: float, renewal_seconds: float | None) -> None:
        """Take a value. ``renewal_seconds``: in which all tokens in the pool are made anew, None where not known."""
        if not self._bins.add(now, held, running):
            return
        times, lows, beside = list(self._bins.times), list(self._bins.lows), list(self._bins.beside)
        if not times:  # the bin that has closed was of long ago
            self.rate, self.reason = None, TOO_SHORT
            return
        span = times[-1] - times[0]
        needed = 0.9 * KEEP_SECONDS if renewal_seconds is None else max(LEAST_SECONDS, RENEWALS * renewal_seconds)
        self.rate = None
        if span < needed or whole <= 0:
            self.reason = TOO_LONG_LIVED if span >= 0.9 * KEEP_SECONDS else TOO_SHORT
            return
        if max(lows) - min(lows) < LEAST_RISE * whole:
            self.rate = Rate(per_minute=0.0, low=0.0, high=0.0, seconds=span, samples=len(times))
            self.reason = ""
            return
        half = len(times) // 2
        rates = []
        for part in (slice(0, None), slice(half, None)):
            at, held_at, running_at = times[part], lows[part], beside[part]
            slope = matched(at, held_at, running_at)
            if slope is None:
                self.reason = NEVER_EQUAL
                return
            spread = spread_of(at, detached(held_at, running_at, at), slope.value)
            rates.append(matched(at, held_at, running_at, spread=spread) or slope)
        each = 60 / whole
        value, low, high = (min(each * rate[n] for rate in rates) for n in range(3))
        rate = Rate(per_minute=max(0.0, value), low=low, high=high, seconds=span, samples=len(times))
        left = slows_to(times, detached(lows, beside, times))
        levels_off = left is not None and left < SLOWS
        self.rate = unsure(rate) if levels_off or value * span / 60 < LEAST_RISE else rate
        self.reason = ""
