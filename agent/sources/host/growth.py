"""Growth over ten minutes, robust: the median of the slopes between all pairs of samples (Theil and Sen)."""

from __future__ import annotations

from collections import deque
from statistics import median

from agent.estimators import pair_slopes
from agent.sources.host.state import Growth

WINDOW_SECONDS = 600.0
SAMPLE_SECONDS = 30.0
LEAST_SAMPLES = 10  # five minutes: a shorter time says nothing about a window of ten


def growth_of(samples: list[tuple[float, int]]) -> Growth | None:
    """Return the growth of ``samples`` (seconds, bytes); None while there are too few to tell."""
    if len(samples) < LEAST_SAMPLES:
        return None
    slopes = pair_slopes(*zip(*samples, strict=True))
    level = median(size for _, size in samples)
    if not slopes:
        return None
    slope = median(slopes)
    return Growth(
        bytes_per_second=slope,
        ratio_per_minute=60 * slope / level if level else 0.0,
        seconds=samples[-1][0] - samples[0][0],
    )


class Samples:
    """The last ten minutes of one number, a sample each half minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=int(WINDOW_SECONDS / SAMPLE_SECONDS) + 1)
        self.growth: Growth | None = None

    def add(self, now: float, size: int | None) -> None:
        """Take ``size`` if it is known and a sample is due; ``growth`` follows."""
        if size is None or (self._samples and now - self._samples[-1][0] < SAMPLE_SECONDS):
            return
        self._samples.append((now, size))
        while now - self._samples[0][0] > WINDOW_SECONDS:
            self._samples.popleft()
        self.growth = growth_of(list(self._samples))
