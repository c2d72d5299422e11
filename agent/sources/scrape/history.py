"""What an engine's readings say together: rates, growth, and for how long nothing on its page has changed."""

from __future__ import annotations

from collections import deque

import msgspec

from agent.sources.scrape.families import COUNTERS, Reading
from agent.sources.scrape.growth import Floor, Growth

RATE_SECONDS = 30.0
RATE_STEP_SECONDS = 2.5
MIN_RATE_SECONDS = 4.0


class Trend(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``unchanged_seconds``: since anything on the page changed. Rates are of half a minute."""

    unchanged_seconds: float
    prompt_tokens_per_second: float | None
    generation_tokens_per_second: float | None
    prefix_hit_ratio: float | None
    growth: Growth | None
    resets: int


class History:
    """Of one engine. Bounded: a dozen readings and a dozen floors."""

    def __init__(self) -> None:
        self._resets = 0
        self._last: Reading | None = None
        self._changed = 0.0
        self._begin()

    def _begin(self) -> None:
        self._kept: deque[tuple[float, Reading]] = deque()
        self._floor = Floor()

    def add(self, now: float, reading: Reading) -> Trend:
        """Take the next reading. ``now``: seconds of a clock that only goes forward."""
        last = self._last
        if last is not None and any(_less(getattr(reading, name), getattr(last, name)) for name in COUNTERS):
            self._resets += 1
            self._begin()
            last = None
        if last is None or reading != last:
            self._changed = now
        self._last = reading
        while self._kept and now - self._kept[0][0] > RATE_SECONDS + RATE_STEP_SECONDS:
            self._kept.popleft()
        earlier = self._kept[0] if self._kept else (now, reading)
        if not self._kept or now - self._kept[-1][0] >= RATE_STEP_SECONDS:
            self._kept.append((now, reading))
        growth = None if reading.usage is None else self._floor.add(now, reading.usage)
        return self._trend(now, reading, earlier, growth)

    def _trend(self, now: float, reading: Reading, earlier: tuple[float, Reading], growth: Growth | None) -> Trend:
        began, first = earlier
        seconds = now - began
        queries = _difference(reading.prefix_queries, first.prefix_queries)
        hits = _difference(reading.prefix_hits, first.prefix_hits)
        return Trend(
            unchanged_seconds=now - self._changed,
            prompt_tokens_per_second=_rate(reading.prompt_tokens, first.prompt_tokens, seconds),
            generation_tokens_per_second=_rate(reading.generation_tokens, first.generation_tokens, seconds),
            prefix_hit_ratio=min(1.0, hits / queries) if hits is not None and queries else None,
            growth=growth,
            resets=self._resets,
        )


def _less(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and a < b


def _difference(new: float | None, old: float | None) -> float | None:
    return None if new is None or old is None else new - old


def _rate(new: float | None, old: float | None, seconds: float) -> float | None:
    return None if new is None or old is None or seconds < MIN_RATE_SECONDS else (new - old) / seconds
