"""Series that a test can know by heart: shapes as functions of time, and noise that is the same each time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

Shape = Callable[[float], float]


def saw(period: float, amplitude: float, base: float = 3000.0) -> Shape:
    """Rises evenly for ``period`` seconds, and falls at once."""
    return lambda t: base + amplitude * (t % period) / period


def triangle(period: float, amplitude: float, base: float = 3000.0) -> Shape:
    """Rises for half of the period and falls for the other half."""
    return lambda t: base + amplitude * (1 - abs(1 - 2 * (t % period) / period))


def line(per_minute: float, base: float = 3000.0, since: float = 0.0) -> Shape:
    """Rises by so much a minute from ``since`` on."""
    return lambda t: base + per_minute * max(0.0, t - since) / 60


def fills(rise: float, seconds: float, base: float = 3000.0) -> Shape:
    """A cache that fills: e-folds each ``seconds``."""
    return lambda t: base + rise * (1 - math.exp(-t / seconds))


def stairs(rise: float, every: float, base: float = 3000.0) -> Shape:
    """A step each ``every`` seconds that never comes down."""
    return lambda t: base + rise * (t // every)


def added(*shapes: Shape) -> Shape:
    """The sum of them."""
    return lambda t: sum(shape(t) for shape in shapes)


class Wander:
    """Wanders about zero with a standard deviation of ``size``, forgetting itself in ``seconds``; asked in order."""

    def __init__(self, size: float, seconds: float, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._size, self._seconds = size, seconds
        self._at = self._value = 0.0

    def __call__(self, t: float) -> float:
        keeps = math.exp(-max(0.0, t - self._at) / self._seconds)
        self._at = t
        self._value = self._value * keeps + self._random.gauss(0, self._size * math.sqrt(1 - keeps * keeps))
        return self._value
