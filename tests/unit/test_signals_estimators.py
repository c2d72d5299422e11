"""The estimators that signals add: at equal load, widened intervals, jumps, lumps, what slows down; and baselines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.estimators import climb, detached, matched, robust_slope, slows_to, spread_of, theil_sen, without_steps
from agent.signals.baseline import ANEW, LEAST_VALUES, Baselines, Usual, usable
from agent.signals.quantiles import between, quantile, share_above
from engine_hooks.detail import Histogram
from tests.unit.series import Wander

TIMES = [float(n) for n in range(0, 600, 10)]


@given(st.floats(0.1, 10), st.floats(1, 200), st.integers(2, 9))
def test_the_slope_at_equal_load_leaves_out_what_goes_with_the_load(slope: float, each: float, levels: int) -> None:
    load = [float(10 + (n * 7) % levels) for n in range(len(TIMES))]
    values = [slope * time + each * level for time, level in zip(TIMES, load, strict=True)]

    found = matched(TIMES, values, load)
    assert found is not None
    assert found.value == pytest.approx(slope, rel=0.2, abs=0.05)
    left = detached(values, load, TIMES)
    assert left[-1] - left[0] == pytest.approx(slope * (TIMES[-1] - TIMES[0]), rel=1e-6)


def test_a_load_that_is_never_the_same_tells_nothing() -> None:
    assert matched(TIMES, TIMES, [10.0 * 1.2**n for n in range(len(TIMES))]) is None


def test_what_rises_with_the_load_all_the_time_is_taken_for_explained() -> None:
    load = [time / 10 for time in TIMES]
    left = detached([100 * level for level in load], load, TIMES)

    assert max(left) - min(left) == pytest.approx(0, abs=1e-6)


def test_an_interval_is_wider_for_what_wanders_and_not_for_noise() -> None:
    wander = Wander(10, 100)
    walk = [wander(time) for time in TIMES]
    noise = [(-1.0) ** n for n in range(len(TIMES))]

    assert spread_of(TIMES, walk, 0.0) > 2
    assert spread_of(TIMES, noise, 0.0) == 1.0
    assert spread_of(TIMES, TIMES, 1.0) == 1.0
    plain, wide = theil_sen(TIMES, walk), robust_slope(TIMES, walk)
    assert plain is not None
    assert wide is not None
    assert wide.value == plain.value
    assert wide.low < plain.low <= plain.high < wide.high


def test_jumps_are_taken_out_and_stairs_are_not() -> None:
    one = [5.0 + 0.01 * n + (100 if n > 20 else 0) for n in range(60)]
    many = [100.0 * (n // 10) for n in range(60)]

    assert max(without_steps(one)) < 6
    assert without_steps(many) == many


def test_lumps_are_a_climb_only_where_none_comes_down() -> None:
    found = climb(TIMES, [float(n // 10) for n in range(len(TIMES))])

    assert found is not None
    assert found.value == pytest.approx(5 / 590)
    assert 0 < found.low < found.value < found.high
    assert climb(TIMES, [0.0] * 30 + [9.0] * 30) is None
    assert climb(TIMES, [float(n % 20) for n in range(len(TIMES))]) is None


def test_what_fills_slows_down_and_a_line_does_not() -> None:
    left = slows_to(TIMES, [1 - math.exp(-time / 300) for time in TIMES])

    assert left is not None
    assert left == pytest.approx(math.exp(-2), abs=0.15)
    assert slows_to(TIMES, TIMES) is None
    assert slows_to(TIMES, [time**2 for time in TIMES]) is None


def test_quantiles_are_of_what_came_between_and_never_of_another_histogram() -> None:
    early = Histogram(bounds=(1.0, 2.0), counts=(10, 0, 0), sum=0.0)
    late = Histogram(bounds=(1.0, 2.0), counts=(10, 90, 10), sum=0.0)

    told = between(late, early)
    assert told is not None
    assert quantile(*told, 0.5) == pytest.approx(1 + 50 / 90)
    assert quantile(*told, 0.99) == 2.0
    assert quantile(*told, 0.99, least=101) is None
    assert between(early, late) is None
    assert between(late, Histogram(bounds=(1.0, 3.0), counts=(0, 0, 0), sum=0.0)) is None
    assert between(late, Histogram(bounds=(1.0, 2.0), counts=(0, 0), sum=0.0)) is None, "as no engine of ours says it"


def test_the_share_above_a_limit_cuts_the_bucket_that_it_lies_in() -> None:
    bounds, counts = (1024.0, 4096.0, 8192.0), [50, 30, 10, 10]
    assert share_above(bounds, counts, 4096) == pytest.approx(0.2)
    assert share_above(bounds, counts, 6144) == pytest.approx(0.15)
    assert share_above(bounds, counts, 10_000) == pytest.approx(0.1)
    assert share_above(bounds, counts, 4096, least=101) is None
    assert share_above(bounds, [0, 0, 0, 0], 1) is None
    assert share_above((8192.0, 8192.0), [5, 0, 5], 4096) == pytest.approx(0.75), "one bound twice"


def test_a_baseline_follows_slowly_ignores_what_is_far_and_in_the_end_accepts_it() -> None:
    usual = Usual()
    for n in range(LEAST_VALUES):
        assert usual.learned() is None
        usual.learn(100.0 + n % 3)
    assert usual.learned() == pytest.approx(101, abs=1)
    for _ in range(60):
        usual.learn(130.0)
    assert usual.learned() == pytest.approx(130, rel=0.01)
    for _ in range(ANEW - 1):
        usual.learn(1000.0)
    assert usual.learned() == pytest.approx(130, rel=0.01)
    for _ in range(1 + LEAST_VALUES):
        usual.learn(1000.0)
    assert usual.learned() == pytest.approx(1000)


def test_baselines_are_bounded_and_a_copy() -> None:
    mine = Baselines(engines={f"e{n}": {"context": Usual(value=1.0, count=99)} for n in range(200)})
    copy = usable(mine)

    assert len(copy.engines) == 64
    copy.engines["e199"]["context"].learn(1.01)
    assert mine.engines["e199"]["context"].value == 1.0
    assert usable(None).engines == {}
