"""How load comes: by the hour, in bursts, with noise that hangs together."""

from __future__ import annotations

import math
from random import Random

from bench.corpus.clock import DAY


class Noise:
    """Noise that returns to zero within ``seconds`` or so (Ornstein and Uhlenbeck), of the deviation ``size``."""

    def __init__(self, rng: Random, size: float, seconds: float) -> None:
        self._rng, self._size, self._seconds = rng, size, seconds
        self._value = rng.gauss(0, size)

    def step(self, elapsed: float) -> float:
        """Return its value ``elapsed`` seconds later."""
        keep = math.exp(-elapsed / self._seconds)
        self._value = keep * self._value + self._size * math.sqrt(max(0.0, 1 - keep * keep)) * self._rng.gauss(0, 1)
        return self._value


class Day:
    """The hour's share of the load, around one: low at night, with a dent at noon, and less at the week's end."""

    def __init__(self, rng: Random, depth: float | None = None) -> None:
        self._depth = rng.uniform(0.2, 0.75) if depth is None else depth
        self._phase = rng.uniform(0, DAY)
        self._week = rng.uniform(0, 7)
        self._noise = Noise(rng, 0.08, 300.0)
        self.peak = 1.1 + self._depth

    def at(self, t: float, elapsed: float) -> float:
        """Return the share ``t`` seconds after the start."""
        turn = 2 * math.pi * (t + self._phase) / DAY
        hour = math.sin(turn) + 0.25 * math.sin(2 * turn + 1)
        weekend = 0.7 if (t / DAY + self._week) % 7 >= 5 else 1.0
        return max(0.02, weekend * (1 + self._depth * hour / 1.25) + self._noise.step(elapsed))


def poisson(rng: Random, mean: float) -> int:
    """Return how many came where ``mean`` are to be expected."""
    if mean <= 0:
        return 0
    if mean > 30:
        return max(0, round(rng.gauss(mean, math.sqrt(mean))))
    limit, number, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        number += 1
        product *= rng.random()
    return number


def saw(t: float, period: float, height: float) -> float:
    """Return a tooth that rises for nine tenths of its period and then falls."""
    place = (t % period) / period
    return height * (place / 0.9 if place < 0.9 else (1 - place) / 0.1)
