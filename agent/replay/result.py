"""The result of a replay: values that go to the screen and to JSON alike. Ratios are of the device's memory."""

from __future__ import annotations

import msgspec


class Sawtooth(msgspec.Struct, frozen=True, kw_only=True):
    """Rises and falls: the median height and the median level that they fall to (ratios), and the median period."""

    teeth: int
    amplitude: float
    floor: float
    peak: float
    period_seconds: float


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """The floor's slope, ratio of the device a minute, with its 95 % interval: over all, and over the last half.

    ``retained``: how much of the device was taken and never came back, in all and in the last half.
    """

    per_minute: float
    low: float
    high: float
    last_half_per_minute: float
    last_half_low: float
    acceleration_per_minute2: float | None
    retained: float
    last_half_retained: float


class Staircase(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that never come down: how many, the median rise (ratio) and the median time between them."""

    steps: int
    rise: float
    every_seconds: float


class Exhaustion(msgspec.Struct, frozen=True, kw_only=True):
    """When the device is full, from the end of the log: seconds, with the interval, and on what condition."""

    seconds: float
    low: float
    high: float | None
    condition: str


class GpuResult(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. ``level``: bad, note or good; ``textbook``: what the write-ups' thresholds say, which judge use alone.

    Without any value of used or total memory all but the counts is None, and the sentence says so.
    """

    gpu: str
    name: str
    samples: int
    rows: int
    missing: dict[str, int]
    gaps: int
    gap_seconds: float
    clock_jumps: int
    span_seconds: float
    interval_seconds: float | None
    total_mib: float | None
    least_mib: float | None
    median_mib: float | None
    most_mib: float | None
    sawtooth: Sawtooth | None
    growth: Growth | None
    staircase: Staircase | None
    exhaustion: Exhaustion | None
    level: str
    sentence: str
    textbook: tuple[str, ...]
    plot: tuple[float | None, ...]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """One file. ``failures``: nvidia-smi's complaints in place of rows, and how often."""

    file: str
    gpus: tuple[GpuResult, ...]
    garbled: int
    failures: dict[str, int]
