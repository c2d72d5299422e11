"""A series as one line of text, for where no picture can be."""

from __future__ import annotations

from agent.replay.plot import plot
from agent.report.track import Track

GAP = 5.0  # usual intervals without a sample are a hole in the line
BARS = "▁▂▃▄▅▆▇█"
NAME = 9  # letters


def line(track: Track, series: str, most: float, unit: str, *, name: str = "") -> str:
    """Return the line of ``series`` against ``most``, with what it is and its unit."""
    known = [(at, value) for at, value in zip(track.at, track.values[series], strict=True) if value is not None]
    cells = plot([at for at, _ in known], [value for _, value in known], GAP)
    top = len(BARS) - 1
    bars = (" " if cell is None else BARS[min(top, max(0, round(top * cell / (most or 1.0))))] for cell in cells)
    return f"{name or series:{NAME}} {''.join(bars)} {unit}"
