"""Estimators on series whose answer is known."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.estimators import (
    Slope,
    acceleration,
    exhaustion,
    floors,
    noise,
    retained,
    steps,
    theil_sen,
    thinned,
)
from agent.signals.teeth import teeth

TIMES = [float(n) for n in range(600)]


def saw(time: float, period: float, height: float) -> float:
    return height * (time % period) / period


@given(st.floats(-5, 5), st.floats(-100, 100))
def test_theil_sen_finds_a_line(slope: float, start: float) -> None:
    found = theil_sen(TIMES, [start + slope * time for time in TIMES])
    assert found is not None
    assert found.value == pytest.approx(slope, abs=1e-9)
    assert found.low <= found.value + 1e-9
    assert found.high >= found.value - 1e-9


def test_theil_sen_ignores_a_quarter_of_outliers_and_its_interval_holds_the_truth() -> None:
    draw = random.Random(1)
    held = 0
    for _ in range(40):
        values = [0.5 * time + draw.gauss(0, 20) for time in TIMES]
        for n in draw.sample(range(600), 120):
            values[n] += 5000
        found = theil_sen(TIMES, values)
        assert found is not None
        assert found.value == pytest.approx(0.5, rel=0.2)
        held += found.low <= 0.5 <= found.high
    assert held >= 34  # of 40, at 95 %


def test_theil_sen_of_noise_is_not_sure() -> None:
    draw = random.Random(2)
    unsure = 0
    for _ in range(40):
        found = theil_sen(TIMES, [draw.gauss(0, 1) for _ in TIMES])
        assert found is not None
        unsure += found.low <= 0 <= found.high
    assert unsure >= 34


def test_too_little_gives_none() -> None:
    assert theil_sen(TIMES[:4], TIMES[:4]) is None
    assert acceleration(TIMES[:9], TIMES[:9]) is None
    assert teeth([], [], 1) == []
    assert noise([1.0]) == 0.0


def test_floors_take_a_saw_tooth_away_and_leave_a_rise() -> None:
    flat = floors(TIMES, [10 + saw(time, 20, 30) for time in TIMES], 60)
    assert set(flat[1]) == {10.0}
    at, low = floors(TIMES, [10 + saw(time, 20, 30) + 0.01 * time for time in TIMES], 60)
    found = theil_sen(at, low)
    assert found is not None
    assert found.value == pytest.approx(0.01)


def test_teeth_are_counted_and_measured() -> None:
    found = teeth(TIMES, [10 + saw(time, 20, 20) for time in TIMES], 5)
    assert len(found) == 29  # the thirtieth hasn't fallen
    assert all((tooth.level, tooth.peak, tooth.end) == (10, 29, 10) for tooth in found)


def test_a_line_a_step_and_noise_have_no_teeth() -> None:
    draw = random.Random(3)
    assert teeth(TIMES, TIMES, 5) == []
    assert teeth(TIMES, [0.0 if time < 300 else 50.0 for time in TIMES], 5) == []
    assert teeth(TIMES, [50 + draw.uniform(-2, 2) for _ in TIMES], 5) == []


def test_noise_is_measured_under_teeth() -> None:
    draw = random.Random(4)
    values = [saw(time, 50, 100) + draw.gauss(0, 2) for time in TIMES]
    assert noise(values) == pytest.approx(2, rel=0.2)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60))
def test_retained_is_the_least_that_is_to_come(values: list[float]) -> None:
    found = retained(values)
    assert found == [min(values[n:]) for n in range(len(values))]
    assert found == sorted(found)


def test_steps_are_found_in_a_staircase_and_not_in_a_slope() -> None:
    stairs = [10.0 * (time // 100) for time in TIMES]
    assert [(step.at, step.rise) for step in steps(TIMES, stairs, 5, 5)] == [(n * 100.0, 10.0) for n in range(1, 6)]
    assert steps(TIMES, [time / 10 for time in TIMES], 5, 5) == []
    assert steps(TIMES, [5.0] * 600, 5, 5) == []


def test_a_step_that_takes_a_few_samples_is_one() -> None:
    values = [min(30.0, max(0.0, 10 * (time - 300))) for time in TIMES]
    (step,) = steps(TIMES, values, 5, 5)
    assert step.rise == 30


def test_acceleration_of_a_parabola() -> None:
    assert acceleration(TIMES, [0.5 * 0.002 * time**2 for time in TIMES]) == pytest.approx(0.002, rel=0.02)
    assert acceleration(TIMES, [3 * time for time in TIMES]) == pytest.approx(0, abs=1e-9)


def test_exhaustion_needs_a_sure_rise() -> None:
    found = exhaustion(0.5, 1.0, Slope(0.01, 0.005, 0.02))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((50, 25, 100))
    assert exhaustion(0.5, 1.0, Slope(0.01, -0.001, 0.02)) is None
    assert exhaustion(1.0, 1.0, Slope(0.01, 0.005, 0.02)) is None


def test_thinning_keeps_the_ends() -> None:
    assert thinned(TIMES, 1000) == TIMES
    few = thinned(TIMES, 7)
    assert (len(few), few[0], few[-1]) == (7, 0, 599)


def test_steps_are_counted_over_what_creeps_up_with_noise() -> None:
    creeping = [10.0 * (time // 100) + 0.01 * (time % 100) for time in TIMES]
    assert len(steps(TIMES, creeping, 5, 30)) == 5
    coarse = [300.0 * n for n in range(40)]
    assert steps(coarse, [0.2 * n for n in range(40)], 0.1, 150) == [], "a slope that is seen seldom is no staircase"
