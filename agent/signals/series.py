"""Series of one number, bounded: bins of a few seconds with their lowest value, and how far apart samples come."""

from __future__ import annotations

from collections import deque
from typing import Literal

GAP_SECONDS = 10.0
GAP_PERIODS = 5.0
FIRST_GAP_SECONDS = 120.0  # while it isn't known how often samples come

Step = Literal["first", "on", "gap", "back"]


class Pace:
    """Tells gaps from the usual time between samples, which may be a second or a minute, and another after a gap."""

    def __init__(self) -> None:
        self.last: float | None = None
        self.period = 1.0
        self._apart: deque[float] = deque(maxlen=9)

    def take(self, now: float) -> Step:
        """Return what the time of a new sample means; ``back``: it is not later than the last, and is ignored."""
        last = self.last
        if last is None:
            self.last = now
            return "first"
        apart = now - last
        if apart <= 0:
            return "back"
        self.last = now
        if apart > self._most():
            self._apart.clear()  # after it they may come at another pace, which is no gap after the other
            return "gap"
        self._apart.append(apart)
        ranked, half = sorted(self._apart), len(self._apart) // 2
        self.period = ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2
        return "on"

    def late(self, now: float) -> bool:
        """Return whether a sample that came now would come after a gap."""
        return self.last is not None and now - self.last > self._most()

    def _most(self) -> float:
        return max(GAP_SECONDS, GAP_PERIODS * self.period) if self._apart else FIRST_GAP_SECONDS


class Due:
    """Says when something is to be done again. ``offset`` delays the second time, so that not all falls together."""

    __slots__ = ("_every", "_next", "_offset")

    def __init__(self, every: float, offset: float = 0.0) -> None:
        self._every = every
        self._offset = offset
        self._next: float | None = None

    def now(self, now: float) -> bool:
        """Return whether it is due; then it is due again after the time that lies between."""
        if self._next is None:
            self._next = now + self._every + self._offset
            return True
        if now < self._next:
            return False
        self._next += self._every
        if self._next <= now:
            self._next = now + self._every
        return True


class Bins:
    """The lowest value of each ``seconds``, and when it was; those older than ``keep_seconds`` are dropped."""

    def __init__(self, seconds: float, keep_seconds: float) -> None:
        self._seconds = seconds
        self._keep = keep_seconds
        most = int(keep_seconds / seconds) + 2
        self.times: deque[float] = deque(maxlen=most)
        self.lows: deque[float] = deque(maxlen=most)
        self.beside: deque[float] = deque(maxlen=most)
        self._open: tuple[float, float, float] | None = None
        self._since = 0.0

    def add(self, now: float, value: float, beside: float = 0.0) -> bool:
        """Take a value, and another that goes with it; return whether that closed a bin."""
        if self._open is None:
            self._since, self._open = now, (now, value, beside)
            return False
        if now - self._since < self._seconds:
            if value < self._open[1]:
                self._open = (now, value, beside)
            return False
        at, low, with_it = self._open
        self.times.append(at)
        self.lows.append(low)
        self.beside.append(with_it)
        # Bins lie on a grid, so that samples which come a little late do not make them longer.
        self._since += self._seconds * ((now - self._since) // self._seconds)
        self._open = (now, value, beside)
        oldest = now - self._keep
        while self.times and self.times[0] < oldest:
            self.times.popleft()
            self.lows.popleft()
            self.beside.popleft()
        return True

    def clear(self) -> None:
        """Forget all."""
        self.times.clear()
        self.lows.clear()
        self.beside.clear()
        self._open = None

    def since(self, begin: float) -> tuple[list[float], list[float]]:
        """Return times and lowest values from ``begin`` on."""
        times = self.times
        skip = 0
        for time in times:
            if time >= begin:
                break
            skip += 1
        return list(times)[skip:], list(self.lows)[skip:]
