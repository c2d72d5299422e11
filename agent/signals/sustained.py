"""What a number has been over the last half minute: a pool under load is full and half empty within seconds."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 30.0  # half of that in which harm counts: what is full and stays full is told soon
MOST_SAMPLES = 128


class Sustained:
    """The mean over half a minute, each value as long as it stood; a gap begins it anew."""

    __slots__ = ("_last", "_samples", "_seconds", "_sum")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, float]] = deque()  # when, for how long, what
        self._sum = self._seconds = 0.0
        self._last: float | None = None

    def take(self, now: float, value: float | None) -> float | None:
        """Return the mean up to ``now``; None, as it is where the value is not known, begins it anew."""
        if value is None:
            self.clear()
            return None
        stood = 0.0 if self._last is None else max(0.0, now - self._last)
        self._last = now
        self._samples.append((now, stood, value))
        self._sum += stood * value
        self._seconds += stood
        while len(self._samples) > MOST_SAMPLES or (
            self._samples[0][0] <= now - WINDOW_SECONDS and len(self._samples) > 1
        ):
            _, stood, gone = self._samples.popleft()
            self._sum -= stood * gone
            self._seconds -= stood
        return self._sum / self._seconds if self._seconds > 1e-6 else value

    def clear(self) -> None:
        """Begin anew."""
        self._samples.clear()
        self._sum = self._seconds = 0.0
        self._last = None
