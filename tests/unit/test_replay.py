"""The replay of a memory log: leaks are seen, and what only looks like one is not."""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections.abc import Callable

import pytest

from agent.replay.judge import judge
from agent.replay.log import Series
from tests.unit.replays import DATA, HOUR, TOTAL, saw, series

# What is a leak, and what is not.


def noisy(seed: int, size: float) -> Callable[[float], float]:
    draw = random.Random(seed)
    return lambda _time: draw.gauss(0, size)


BUMPS = noisy(5, 0.003)


@pytest.mark.parametrize(
    "leak",
    [
        lambda t: 0.3 + 0.4 * t / (2 * HOUR),
        lambda t: 0.3 + 0.4 * t / (2 * HOUR) + BUMPS(t),
        lambda t: 0.2 + 0.35 * t / (2 * HOUR) + saw(t, 100, 0.3),
        lambda t: 0.2 + 0.05 * (t // 600),
        lambda t: 0.2 + 0.05 * (t // 600) + saw(t, 37, 0.1),
        lambda t: 0.1 + 0.8 * (t / (2 * HOUR)) ** 2,
    ],
    ids=["line", "noisy line", "under a saw-tooth", "staircase", "staircase under a saw-tooth", "accelerating"],
)
def test_a_leak_is_seen_and_forecast(leak: Callable[[float], float]) -> None:
    found = judge(series(leak))
    assert found.level == "bad", found.sentence
    assert found.exhaustion is not None
    assert found.exhaustion.condition.startswith("at this rate ")


@pytest.mark.parametrize(
    "healthy",
    [
        lambda t: 0.9,
        lambda t: 0.9 + BUMPS(t) / 10,
        lambda t: min(0.9, 0.9 * t / 600),
        lambda t: 0.3 + 0.5 * (1 - math.exp(-t / 900)),
        lambda t: min(0.9, 0.09 * (t // 60)),
        lambda t: 0.45 + saw(t, 120, 0.4),
        lambda t: 0.3 + 0.05 * ((t // 600) % 4),
        lambda t: 0.5 + 0.3 * math.sin(t / 1500),
        lambda t: 0.3 if t < HOUR else 0.6,
        lambda t: 0.9 - 0.4 * t / (2 * HOUR),
        lambda t: 0.02,
    ],
    ids=[
        *("preallocated", "preallocated, noisy", "ramp to a plateau", "levelling off", "loaded in chunks", "saw-tooth"),
        *("stairs that come down", "a slow wave", "one step", "falling", "idle"),
    ],
)
def test_what_is_no_leak_stays_quiet(healthy: Callable[[float], float]) -> None:
    found = judge(series(healthy))
    assert found.level == "good", found.sentence
    assert found.exhaustion is None
    assert found.staircase is None


def test_a_slope_under_a_slow_saw_tooth_is_no_staircase() -> None:
    found = judge(series(lambda t: 0.2 + 0.5 * t / (2 * HOUR) + saw(t, 300, 0.25)))
    assert (found.level, found.staircase) == ("bad", None)
    assert "The floor grows" in found.sentence


def test_a_slow_rise_is_a_suspicion_in_a_short_log_and_a_leak_in_a_long_one() -> None:
    def slow(time: float) -> float:
        return 0.3 + 0.03 * time / HOUR

    assert judge(series(slow, seconds=2 * HOUR)).level == "note"
    assert judge(series(slow, seconds=10 * HOUR, every=10)).level == "bad"


def test_saw_tooth_and_floor_are_measured_and_the_textbook_numbers_told_apart() -> None:
    found = judge(series(lambda t: 0.45 + saw(t, 120, 0.4)))
    assert found.sawtooth is not None
    assert found.sawtooth.amplitude == pytest.approx(0.4, abs=0.01)
    assert found.sawtooth.floor == pytest.approx(0.45, abs=0.01)
    assert found.sawtooth.period_seconds == 120
    assert found.textbook == ("saw-tooth amplitude 39% > 30%", "saw-tooth floor 45% > 40%")
    assert judge(series(lambda t: 0.2 + saw(t, 120, 0.2))).textbook == ()


def test_a_saw_tooth_fakes_no_slope() -> None:
    found = judge(series(lambda t: 0.3 + saw(t, 700, 0.4)))
    assert found.growth is not None
    assert abs(found.growth.per_minute) < 1e-4


def test_growth_is_per_minute_of_the_device() -> None:
    found = judge(series(lambda t: 0.1 + 0.002 * t / 60))
    assert found.growth is not None
    assert found.growth.per_minute == pytest.approx(0.002, rel=0.01)
    assert found.growth.acceleration_per_minute2 == pytest.approx(0, abs=1e-6)


def test_the_forecast_is_when_the_peaks_reach_the_end() -> None:
    found = judge(series(lambda t: 0.1 + 0.002 * t / 60 + saw(t, 100, 0.4)))
    assert found.exhaustion is not None
    # The floor is at 0.34 after two hours, and the median peak half of its rise below the last one.
    assert found.exhaustion.low <= found.exhaustion.seconds
    assert 0.26 / 0.002 * 60 * 0.8 <= found.exhaustion.seconds <= 0.40 / 0.002 * 60


def test_what_runs_full_and_falls_again_and_again_is_told() -> None:
    found = judge(series(lambda t: 0.04 + saw(t, 1300, 0.95)))
    assert found.level == "bad"
    assert "restart or an out-of-memory kill" in found.sentence


def test_a_short_ramp_is_a_start_until_proven_otherwise() -> None:
    found = judge(series(lambda t: 0.1 + 0.8 * t / 300, seconds=300))
    assert found.level == "note"
    assert "too short" in found.sentence


# What grows by less than a leak: no alarm, and no all-clear that its own numbers contradict.


def minutes(used: Callable[[int], float], count: int = 30, every: float = 60.0) -> Series:
    made = Series(gpu="0", total=TOTAL)
    for n in range(count):
        made.add(n * every, round(used(n)))
    return made


def test_a_little_growth_in_a_short_log_is_told_and_never_cleared() -> None:
    found = judge(minutes(lambda n: 20_000 + 50 * n))
    assert (found.level, found.exhaustion) == ("note", None)
    assert found.sentence == (
        "Grows by 0.06% of the device a minute (1.6% in 29 min): too little in so short a log to judge."
    )


@pytest.mark.parametrize(
    ("used", "count", "every", "says"),
    [
        (
            lambda n: 20_000 + 50 * n,
            45,
            60.0,
            "Grows by 0.06% of the device a minute (2.5% in 44 min): too little in so",
        ),
        (lambda n: 20_000 + n, 600, 60.0, "Grows by 0.07% of the device an hour (0.7% in 9 h 59 min): too little to"),
        (lambda n: 20_000 + n, 1000, 600.0, "Grows by 0.18% of the device a day (1.2% in 166 h 30 min): too little to"),
        (lambda n: 20_000 + 3 * n + 9000 * (n % 40) / 40, 600, 1.0, "The floor grows by 0.22% of the device a minute"),
    ],
    ids=["past what reads as constant", "long", "for a week", "under a saw-tooth"],
)
def test_growth_is_told_by_a_time_in_which_it_shows(
    used: Callable[[int], float], count: int, every: float, says: str
) -> None:
    found = judge(minutes(used, count, every))
    assert found.level == "note"
    assert found.sentence.startswith(says)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [0.0, 1.0, 20.0, 150.0])
def test_what_stays_within_its_noise_is_constant(seed: int, size: float) -> None:
    draw = noisy(seed, size)
    found = judge(minutes(lambda n: 70_000 + draw(n)))
    assert found.level == "good"
    assert found.sentence.endswith("preallocated or idle, nothing grows.")


def test_a_little_growth_that_ended_is_no_suspicion_and_not_nothing() -> None:
    found = judge(minutes(lambda n: 20_000 + 50 * min(n, 20), count=40))
    assert found.level == "good"
    assert found.sentence.endswith("almost: it grew by 1.2% of the device, and levels off or comes back.")


def test_teeth_that_the_samples_hit_a_little_later_each_time_are_no_growth() -> None:
    # The second of each trough drifts, and the lowest sample with it.
    found = judge(minutes(lambda n: 20_000 + 400 * (n * 1.431 % 10), count=400, every=10.0))
    assert found.level == "good", found.sentence
    assert found.growth is not None


def test_too_few_samples_for_a_slope_clear_nothing() -> None:
    assert judge(minutes(lambda n: 20_000 + 50 * n, count=10)).sentence == (
        "Constant at 25% of the device, sampled too seldom or unevenly to tell whether it grows."
    )


def heap_series() -> list[tuple[str, list[float], float]]:
    found = []
    folder = DATA / "normal_series"
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        table = list(csv.reader(text.splitlines()))
        for column, name in enumerate(table[0][1:], start=1):
            values = [float(row[column]) for row in table[1:] if row[column] not in {"", "-1", "-1.0"}]
            if len(values) > 100:
                found.append((f"{path.name} {name}", values, 300.0 if path.suffix == ".csv" else 1.0))
    return found


@pytest.mark.skipif(not DATA.is_dir(), reason="the folder of recorded data is not here")
def test_recorded_heaps_and_noise_without_a_leak_never_alarm() -> None:
    tried = heap_series()
    assert len(tried) >= 10
    for name, values, every in tried:
        for room in (1.1, 1.25, 2.0):
            made = Series(gpu="0", total=room * max(values) / 2**20)
            for n, value in enumerate(values):
                made.add(n * every, value / 2**20)
            found = judge(made)
            assert found.level != "bad", (name, room, found.sentence)
