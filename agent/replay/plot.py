"""A series as the columns of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

CELLS = 71  # a terminal's 80 columns without the frame and the scale


def plot(times: Sequence[float], values: Sequence[float], usual: float) -> tuple[float | None, ...]:
    """Return the highest value of each of ``CELLS`` equal spans of time; None where there was no sample.

    A sample stands until the next one, but over a pause of more than ``usual`` usual intervals there is a hole.
    """
    if not values:
        return ()
    longest = usual * median(later - earlier for earlier, later in pairwise(times)) if len(times) > 1 else 0.0
    span = (times[-1] - times[0]) or 1.0
    columns: list[float | None] = [None] * CELLS
    last, before = 0, times[0]
    held = values[0]
    for time, value in zip(times, values, strict=True):
        n = min(CELLS - 1, int(CELLS * (time - times[0]) / span))
        if n > last + 1 and time - before <= longest:
            columns[last + 1 : n] = [held] * (n - last - 1)
        known = columns[n]
        columns[n] = value if known is None or value > known else known
        last, before, held = n, time, value
    return tuple(columns)
