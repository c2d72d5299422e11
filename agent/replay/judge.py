"""From a log to its verdict. Use alone is no fault: a server preallocates; what counts is what grows and stays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from agent.estimators import Slope, exhaustion, noise
from agent.replay import shapes
from agent.replay.errors import ReplayError
from agent.replay.log import Series, read_log
from agent.replay.plot import plot
from agent.replay.result import Exhaustion, GpuResult, Growth, Replay, Sawtooth, Staircase
from agent.units import human_seconds

# The policy's textbook numbers.
AMPLITUDE, FLOOR = 0.30, 0.40
USE_WARN, USE_PAGE = 0.85, 0.95
GROWTH_WARN, GROWTH_PAGE = 0.05, 0.08  # a minute

LEAST_RISE = 0.03  # of the device: what stays has to be that much to be a leak
LASTING = 0.5  # of what the slope makes over the log has to have stayed for good
SLOWING = 0.3  # of the whole slope: where the last half grows less than that, it levels off
LONG = 4 * 3600.0  # seconds: what grew for that long is no cache that fills
SHORTEST = 600.0  # seconds: in less a leak can't be told from a start
GAP = 5.0  # usual intervals: a longer pause is a gap
PERIODS = 2  # of a saw-tooth, in which there is a peak
CHANCE = 4.0  # standard deviations of the noise: what never came back may be that much by chance
RESOLUTION = 2.0  # MiB: nvidia-smi writes whole ones, and each end may be off by one
LEAST_PRINTED = 1e-4  # what is less reads as 0.00 %
RUNS_FULL = 0.5  # of the device that falls from USE_PAGE, so that something ended


def replay_file(
    path: Path, *, columns: str | None = None, interval: float | None = None, total_mib: float | None = None
) -> Replay:
    """Return what the log at ``path`` says; raises :class:`ReplayError` where it lacks what is needed."""
    log = read_log(path, columns, interval)
    for series in log.series.values():
        if total_mib is not None:
            series.total = total_mib
            if series.used and max(series.used) > total_mib:
                raise ReplayError(f"{path}: --total-mib {total_mib:g} is less than the {max(series.used):g} MiB in use")
        if series.total is None and series.times:
            raise ReplayError(f"{path}: has no memory.total; give the device's memory: --total-mib 81920")
    return Replay(
        file=str(path),
        gpus=tuple(judge(series) for series in log.series.values()),
        garbled=log.garbled,
        failures=dict(log.failures.most_common(10)),
    )


def judge(series: Series) -> GpuResult:
    """Return what one GPU's series says."""
    total, times = series.total, series.times
    if not times or total is None:
        unread = series.rows > series.missing.total() and not times
        why = (
            "None of its times can be read (nvidia-smi writes 2026/01/31 23:59:59.000)"
            if unread
            else "No value of used memory in it"
        )
        return _result(series, level="note", sentence=f"{why}: nothing can be judged.")
    values = [used / total for used in series.used]
    span = times[-1] - times[0]
    apart = [later - earlier for earlier, later in pairwise(times)]
    interval = median(apart) if apart else None
    if interval is None or len(times) < 10:
        return _result(series, level="note", sentence="Too few samples to judge.", values=values)
    saw = shapes.sawtooth(times, values)
    each = shapes.window(span, interval, saw)
    growth = shapes.growth(times, values, each, saw)
    stairs = shapes.staircase(times, values, interval, saw)
    leaks = growth if growth is not None and span >= SHORTEST and _leaks(growth, span) else None
    stairs = stairs if span >= SHORTEST else None
    forecast = _forecast(_crest(times, values, saw), growth, saw) if growth and (leaks or stairs) else None
    # What is no more than the noise of the samples, or of where they hit a tooth, is no growth.
    missed = saw.amplitude * interval / saw.period_seconds if saw else 0.0
    chance = max(CHANCE * noise(values), RESOLUTION / total, missed)
    creeps = growth if growth is not None and growth.low > 0 and growth.retained > chance else None
    level, sentence = (
        _grows(leaks, stairs, span, forecast)
        or _runs_full(saw)
        or _creeps(creeps, span, saw)
        or _stays(values, span, saw, growth, creeps)
    )
    return _result(
        series,
        values=values,
        gaps=[each for each in apart if each > GAP * interval],
        interval=interval,
        sawtooth=saw,
        growth=growth,
        staircase=stairs,
        exhaustion=forecast,
        level=level,
        sentence=sentence,
        textbook=_textbook(values, growth, saw),
    )


def _leaks(growth: Growth, span: float) -> bool:
    """Return whether the floor grows in both windows, does not level off, and what came stays."""
    if growth.low <= 0 or _levels_off(growth):
        return False
    made = growth.per_minute * span / 60
    lasting = growth.retained >= max(LEAST_RISE, LASTING * made)
    return lasting and growth.last_half_retained >= LEAST_RISE / 3


def _levels_off(growth: Growth) -> bool:
    return growth.last_half_low <= 0 or growth.last_half_per_minute < SLOWING * growth.per_minute


def _crest(times: Sequence[float], values: Sequence[float], saw: Sawtooth | None) -> float:
    """Return the level that runs into the end first: the last peaks of a saw-tooth, which ride on the floor."""
    since = times[-1] - (PERIODS * saw.period_seconds if saw else 0.0)
    return max(value for time, value in zip(times, values, strict=True) if time >= since)


def _forecast(level: float, growth: Growth, saw: Sawtooth | None) -> Exhaustion | None:
    if growth.last_half_per_minute < growth.per_minute:
        slope = Slope(growth.last_half_per_minute / 60, growth.last_half_low / 60, growth.high / 60)
    else:
        slope = Slope(growth.per_minute / 60, growth.low / 60, growth.high / 60)
    left = exhaustion(level, 1.0, slope)
    if left is None:
        return None
    kept = " if the peaks keep their height" if saw else ""
    condition = f"at this rate (the slower of the whole log and its last half){kept}, unless restarted"
    return Exhaustion(seconds=left.value, low=left.low, high=left.high, condition=condition)


def _grows(
    leak: Growth | None, stairs: Staircase | None, span: float, forecast: Exhaustion | None
) -> tuple[str, str] | None:
    """Return what to say of memory that grows and stays; None where it doesn't.

    What is slow and was watched for a short time may as well be a cache that fills: that is a suspicion only.
    """
    if stairs is not None:
        text = (
            f"A staircase: {stairs.steps} steps of about {stairs.rise:.1%} of the device, one every "
            f"{human_seconds(stairs.every_seconds)}, and none comes down."
        )
    elif leak is not None:
        text = (
            f"The floor grows by {_rate(leak.per_minute)} and does not come back: "
            f"{leak.retained:.0%} of the device over {human_seconds(span)}, in both halves of the log."
        )
    else:
        return None
    if span >= LONG or (forecast is not None and forecast.seconds <= span):
        return "bad", f"{text} That is a leak's shape."
    return "note", f"{text} A cache that fills looks the same: a longer log can tell."


def _rate(per_minute: float) -> str:
    """Return a rate by the shortest time in which it is enough to be printed."""
    for minutes, name in ((1, "a minute"), (60, "an hour")):
        if minutes * per_minute >= LEAST_PRINTED:
            return f"{minutes * per_minute:.2%} of the device {name}"
    return f"{1440 * per_minute:.2%} of the device a day"


def _runs_full(saw: Sawtooth | None) -> tuple[str, str] | None:
    """Return what to say of memory that runs full and falls again and again; None where it doesn't."""
    if saw is None or saw.peak < USE_PAGE or saw.amplitude < RUNS_FULL:
        return None
    return "bad", (
        f"It runs full {saw.teeth} times, about every {human_seconds(saw.period_seconds)}, and then falls by "
        f"{saw.amplitude:.0%} of the device: what ends it may be a restart or an out-of-memory kill."
    )


def _creeps(growth: Growth | None, span: float, saw: Sawtooth | None) -> tuple[str, str] | None:
    """Return what to say of memory that grows to the end, but too little to be a leak yet; None where it doesn't."""
    if growth is None or growth.retained >= LEAST_RISE or _levels_off(growth):
        return None
    if growth.retained < LASTING * growth.per_minute * span / 60:
        return None
    short = "too little in so short a log to judge" if span < LONG else "too little to judge, a longer log can tell"
    return "note", (
        f"{'The floor grows' if saw else 'Grows'} by {_rate(growth.per_minute)} ({growth.retained:.1%} in "
        f"{human_seconds(span)}): {short}."
    )


def _stays(
    values: Sequence[float], span: float, saw: Sawtooth | None, growth: Growth | None, grew: Growth | None
) -> tuple[str, str]:
    """Return what to say of memory that does not grow for good; ``grew``: the growth where it is more than noise."""
    if saw is not None:
        return "good", f"A saw-tooth that comes down each time ({saw.teeth} teeth): nothing stays. No leak's shape."
    if max(values) - min(values) < shapes.LEAST_TOOTH:
        constant = f"Constant at {median(values):.0%} of the device"
        if growth is None:
            return "note", f"{constant}, sampled too seldom or unevenly to tell whether it grows."
        if grew is not None:
            return (
                "good",
                f"{constant}, almost: it grew by {grew.retained:.1%} of the device, and levels off or comes back.",
            )
        return "good", f"{constant}: preallocated or idle, nothing grows."
    if span < SHORTEST:
        return "note", f"{human_seconds(span)} is too short to tell a leak from a start."
    return "good", "It levels off or comes back: no leak's shape."


def _textbook(values: Sequence[float], growth: Growth | None, saw: Sawtooth | None) -> tuple[str, ...]:
    """Return where the write-ups' thresholds are crossed: they judge use alone, and a healthy server crosses them."""
    rows = []
    middle = median(values)
    if middle > USE_WARN:
        rows.append(f"use {middle:.0%} > {USE_PAGE if middle > USE_PAGE else USE_WARN:.0%}")
    if saw is not None and saw.amplitude > AMPLITUDE:
        rows.append(f"saw-tooth amplitude {saw.amplitude:.0%} > {AMPLITUDE:.0%}")
    if saw is not None and saw.floor > FLOOR:
        rows.append(f"saw-tooth floor {saw.floor:.0%} > {FLOOR:.0%}")
    if growth is not None and growth.per_minute > GROWTH_WARN:
        limit = GROWTH_PAGE if growth.per_minute > GROWTH_PAGE else GROWTH_WARN
        rows.append(f"growth {growth.per_minute:.1%}/min > {limit:.0%}/min")
    return tuple(rows)


def _result(
    series: Series,
    *,
    level: str,
    sentence: str,
    values: Sequence[float] = (),
    gaps: Sequence[float] = (),
    interval: float | None = None,
    sawtooth: Sawtooth | None = None,
    growth: Growth | None = None,
    staircase: Staircase | None = None,
    exhaustion: Exhaustion | None = None,
    textbook: tuple[str, ...] = (),
) -> GpuResult:
    times, used = series.times, series.used
    return GpuResult(
        gpu=series.gpu,
        name=series.name,
        samples=len(times),
        rows=series.rows,
        missing=dict(series.missing.most_common(10)),
        gaps=len(gaps),
        gap_seconds=sum(gaps),
        clock_jumps=series.clock_jumps,
        span_seconds=times[-1] - times[0] if times else 0.0,
        interval_seconds=interval,
        total_mib=series.total,
        least_mib=min(used) if used else None,
        median_mib=median(used) if used else None,
        most_mib=max(used) if used else None,
        sawtooth=sawtooth,
        growth=growth,
        staircase=staircase,
        exhaustion=exhaustion,
        level=level,
        sentence=sentence,
        textbook=textbook,
        plot=plot(times, values, GAP),
    )
