"""What counters have counted over the last minutes: some readings are kept, and compared with the one of now."""

from __future__ import annotations

import math
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

MINUTE = 60.0
MINUTES = 300.0


class Kept(Generic[T]):
    """Keeps a value each ``every`` seconds for ``seconds``, and hands out the one of so long ago."""

    def __init__(self, every: float, seconds: float) -> None:
        self._every = every
        self._kept: deque[tuple[float, T]] = deque(maxlen=math.ceil(seconds / every) + 1)

    def __len__(self) -> int:
        return len(self._kept)

    def due(self, now: float) -> bool:
        """Return whether it is time to keep a value."""
        return not self._kept or now - self._kept[-1][0] >= self._every

    def add(self, now: float, value: T) -> bool:
        """Keep ``value`` if it is time; return whether it was."""
        if not self.due(now):
            return False
        self._kept.append((now, value))
        return True

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()

    def ago(self, now: float, seconds: float) -> tuple[float, T] | None:
        """Return the seconds since, and the value, of the moment at most ``seconds`` ago that lies furthest back."""
        for at, value in self._kept:
            if now - at <= seconds + 1e-6:
                return (now - at, value) if at < now else None
        return None

    def values(self) -> list[tuple[float, T]]:
        """Return what is kept, with the times, oldest first."""
        return list(self._kept)


def came(now: int | float | None, before: int | float | None) -> float | None:
    """Return how much a counter has counted; None where it is not known, or it has begun anew."""
    if now is None or before is None or now < before:
        return None
    return float(now - before)


def ratio(part: float | None, whole: float | None, least: float = 1.0) -> float | None:
    """Return ``part / whole``, 0..1; None where either is not known or ``whole`` is below ``least``."""
    if part is None or whole is None or whole < least or whole <= 0:
        return None
    return min(1.0, max(0.0, part / whole))


def per_minute(number: float | None, seconds: float) -> float | None:
    """Return a number in ``seconds`` as one a minute."""
    return None if number is None or seconds <= 0 else 60 * number / seconds
