"""Histograms that are filled on the engine's thread: one bisection and two additions per value."""

from __future__ import annotations

from bisect import bisect_left

from engine_hooks.detail import Histogram

# Seconds that a request lives, waits or comes back after.
BLOCK_SECONDS = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0)
REQUEST_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
PROMPT_TOKENS = (128.0, 256.0, 512.0, *(1024.0 * 2**n for n in range(11)))  # up to a million


class Buckets:
    """Counts values by upper bound, the bound itself included; ``bounds`` must rise."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def row(self) -> Histogram:
        """Return what has been counted so far, as it is sent."""
        return Histogram(bounds=self.bounds, counts=tuple(self.counts), sum=self.sum)
