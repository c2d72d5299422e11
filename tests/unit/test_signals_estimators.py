"""The estimators that signals add: at equal load, widened intervals, jumps, lumps, what slows down; and baselines."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.estimators import (
    climb,
    detached,
    matched,
    robust_slope,
    slows_to,
    spread_of,
    theil_sen,
    without_jumps,
    without_steps,
)
from agent.signals.baseline import (
    ANEW,
    EARLY_VALUES,
    FORGET_HOURS,
    LEAST_VALUES,
    MOST_NAMES,
    Baselines,
    Learning,
    Usual,
    grown_old,
    usable,
)
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


def test_until_there_is_a_baseline_a_high_one_of_the_first_values_stands_for_it() -> None:
    usual = Usual()
    for n in range(LEAST_VALUES):
        assert (usual.early() is None) == (n < EARLY_VALUES)
        usual.learn(0.9 if n == EARLY_VALUES - 1 else 0.2 + 0.001 * (n % 3))  # a surge's first minute teaches little
        if EARLY_VALUES - 1 <= n < LEAST_VALUES - 1:
            assert usual.early() == pytest.approx(0.2, abs=0.003)
    assert usual.early() is None, "there is one"
    climbs = Usual()
    for n in range(LEAST_VALUES - 1):
        climbs.learn(0.1 + 0.02 * n)
    early = climbs.early()
    assert early is not None
    assert (0.1 + 0.02 * LEAST_VALUES) / early < 1.5, "what has been on its way up all the time has not jumped"


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


def test_a_jump_is_taken_out_and_a_slope_and_a_bow_are_left() -> None:
    steady = [0.1 * n for n in range(20)]
    jumped = [value + (5.0 if n >= 9 else 0.0) for n, value in enumerate(steady)]
    fills = [10 * (1 - math.exp(-n / 4)) for n in range(20)]

    assert without_jumps(steady, 0.1) == steady
    assert without_jumps(fills, 0.1) == fills
    taken = without_jumps(jumped, 0.45)
    assert max(b - a for a, b in pairwise(taken)) < 0.2
    assert without_jumps([], 1.0) == []


def test_noise_is_no_jump() -> None:
    draw = random.Random(5)
    values = [draw.gauss(0, 1) for _ in range(60)]
    assert without_jumps(values, 0.3) == values


def test_what_is_not_seen_for_fourteen_days_is_forgotten() -> None:
    known = {"m": {"context": Usual(value=1.0, count=99), "share/a": Usual(value=0.2, count=99)}, "old": {"x": Usual()}}
    seen = Learning(known["m"])
    for _ in range(FORGET_HOURS + 1):
        grown_old(known, {"m"})
        seen.times("context", 2.0, 1.0)
    assert {engine: list(names) for engine, names in known.items()} == {"m": ["context"]}


def test_a_new_tenant_takes_the_place_of_the_one_that_is_not_seen_for_longest() -> None:
    known = {f"share/{n}": Usual(value=1.0, count=99, unseen=n % 7) for n in range(MOST_NAMES)}
    learning = Learning(known)
    learning.learn("share/new", 0.1)
    assert len(known) == MOST_NAMES
    assert "share/new" in known
    assert "share/6" not in known
    for usual in known.values():
        usual.unseen = 0
    learning.learn("share/newer", 0.1)
    assert "share/newer" not in known, "all of them are there"
