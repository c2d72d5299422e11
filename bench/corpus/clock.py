"""Times as an agent has them: a period with jitter, gaps when the node is busy, a wall clock that is set."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

DAY = 86_400.0
HOUR = 3_600.0
MINUTE = 60.0


def period_of(rng: Random) -> float:
    """Return how often a node is judged: each second live, each few seconds where a recording was thinned."""
    return rng.choice((1.0, 2.0, 2.0, 4.0))


class Tick(NamedTuple):
    """``t``: seconds since the first; ``monotonic``: by the clock that never jumps; ``at``: by the one that does."""

    t: float
    monotonic: float
    at: float
    elapsed: float


class Clock:
    """Draws a node's times once, so that a scenario knows when its faults are before the first state is made."""

    def __init__(self, rng: Random, seconds: float, period: float, *, quiet: bool = False) -> None:
        self._rng = Random(rng.getrandbits(64))
        self.seconds, self.period = seconds, period
        self.start = rng.uniform(1_000.0, 5_000_000.0)
        self.wall = rng.uniform(1.70e9, 1.79e9)
        self._jumps = [] if quiet else sorted(rng.uniform(0, seconds) for _ in range(rng.choice((0, 0, 0, 1, 1, 2))))
        # An agent that was stopped, or a node without air: a minute or two, at most every few hours.
        number = 0 if quiet else min(6, int(rng.expovariate(1.0) * (0.4 + seconds / (6 * HOUR))))
        self._gaps = [
            (rng.uniform(0.05, 0.95) * seconds, rng.choice((5, 12, 40, 90)) * max(1.0, period)) for _ in range(number)
        ]

    def monotonic(self, t: float) -> float:
        """Return the moment ``t`` seconds after the first state."""
        return self.start + t

    def __iter__(self) -> Iterator[Tick]:
        rng, t, last, jumps, gaps, offset = self._rng, 0.0, 0.0, list(self._jumps), sorted(self._gaps), 0.0
        while t <= self.seconds:
            while jumps and jumps[0] <= t:
                jumps.pop(0)
                offset += rng.choice((-1, 1)) * rng.choice((0.4, 3.0, 61.0, 3_600.0))
            yield Tick(t, self.start + t, self.wall + t + offset, t - last)
            last = t
            t += self.period * max(0.2, rng.gauss(1.0, 0.02))
            if gaps and gaps[0][0] <= t:
                t += gaps.pop(0)[1]
