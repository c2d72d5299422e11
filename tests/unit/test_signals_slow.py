"""The slow estimator: leaks and staircases are seen; plateaus, cycles, caches that fill and steps are not."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.signals.slow import SlowTrack
from agent.signals.tiers import TIERS, Tiers
from agent.signals.types import Slow
from tests.unit.series import Shape, Wander, added, fills, line, saw, stairs

WHOLE = 10_000.0
HOUR = 3600.0
STAIRS = 4


def play(
    shape: Shape,
    hours: float,
    *,
    beside: Shape | None = None,
    step: float = 20.0,
    exact: bool = False,
    equal: bool = False,
) -> list[tuple[float, Slow]]:
    """Return what it says, with the hours at which it says it, each minute."""
    track, said, t, last = SlowTrack(exact=exact), [], 0.0, None
    while t < hours * HOUR:
        track.add(t, shape(t), WHOLE, None if beside is None else beside(t))
        slow = track.at_equal if equal else track.slow
        if slow is not None and slow is not last:
            said.append((t / HOUR, slow))
            last = slow
        t += step
    return said


def leaks(said: list[tuple[float, Slow]]) -> list[float]:
    return [hours for hours, slow in said if slow.leaks or slow.staircase >= STAIRS]


@pytest.mark.parametrize("per_hour", [0.01, 0.03, 0.10])
def test_a_leak_is_seen_and_its_rate_is_right(per_hour: float) -> None:
    said = play(added(line(per_hour * WHOLE / 60, base=2000), Wander(60, 60)), 4)

    assert leaks(said)
    slow = said[-1][1]
    assert slow.leaks
    assert slow.per_hour == pytest.approx(per_hour, rel=0.25)
    assert slow.low <= slow.per_hour <= slow.high
    assert slow.retained_ratio > 0.7


def test_a_leak_is_seen_within_the_first_hour_and_a_half() -> None:
    assert leaks(play(added(line(0.05 * WHOLE / 60, base=2000), Wander(60, 60)), 2))[0] < 1.5


def test_a_leak_that_begins_after_a_long_plateau_is_seen_soon() -> None:
    said = play(added(line(0.04 * WHOLE / 60, base=2000, since=8 * HOUR), Wander(60, 60)), 11)

    assert 8 < leaks(said)[0] < 10.2


def test_a_trend_under_a_saw_tooth_is_a_leak() -> None:
    said = play(added(saw(200, 2000, base=1000), line(0.03 * WHOLE / 60, base=0), Wander(30, 60)), 4)

    assert said[-1][1].leaks
    assert said[-1][1].per_hour == pytest.approx(0.03, rel=0.3)


@pytest.mark.parametrize(
    ("name", "shape", "hours"),
    [
        ("plateau", added(line(0, base=6000), Wander(300, 60)), 8),
        ("plateau that wanders slowly", added(line(0, base=5000), Wander(500, 1200, 3)), 8),
        ("saw-tooth of 200 s", added(saw(200, 3000), Wander(50, 60)), 6),
        ("saw-tooth of an hour", added(saw(HOUR, 3000), Wander(50, 60)), 10),
        ("one step", added(lambda t: 1500.0 if t > 5000 else 0.0, line(0, base=3000), Wander(50, 60)), 8),
        ("cache that fills in minutes", added(fills(5000, 900, base=1000), Wander(50, 60)), 6),
        ("cache that fills in an hour", added(fills(5000, HOUR, base=1000), Wander(50, 60)), 8),
        ("cache that fills in three hours", added(fills(5000, 2 * HOUR, base=1000), Wander(20, 60)), 12),
        ("start in steps", lambda t: 1000 + 800 * min(5.0, t // 120), 6),
    ],
)
def test_what_looks_like_a_leak_and_is_none(name: str, shape: Shape, hours: float) -> None:
    assert not leaks(play(shape, hours)), name


def test_what_has_been_watched_for_long_is_estimated_more_seldom_and_told_as_soon() -> None:
    said = play(added(line(0.04 * WHOLE / 60, base=2000, since=20 * HOUR), Wander(60, 60)), 23, step=60)

    before = [hours for hours, _ in said if 18 < hours < 20]
    assert len(before) < 2 * HOUR / 60 / 3
    assert 20 < leaks(said)[0] < 22.2


def test_a_day_s_cycle_is_none_on_its_second_day() -> None:
    said = play(lambda t: 4000 - 3000 * math.cos(2 * math.pi * t / 86400), 50, step=60)

    assert not [hours for hours in leaks(said) if hours > 24]


def _day(t: float) -> float:
    return round(40 - 30 * math.cos(2 * math.pi * t / 86400))


def test_a_day_s_cycle_that_requests_explain_is_none_at_all() -> None:
    noise = Wander(80, 60)

    assert not leaks(play(lambda t: 100 * _day(t) + noise(t), 26, beside=_day, step=60))
    noise = Wander(80, 60)
    assert not leaks(play(lambda t: 100 * _day(t) + noise(t), 26, beside=_day, step=60, equal=True))


def test_a_leak_under_a_day_s_cycle_is_seen_at_equal_requests() -> None:
    noise = Wander(80, 60)
    said = play(lambda t: 100 * _day(t) + 150 * t / HOUR + noise(t), 20, beside=_day, step=60, equal=True)

    assert leaks(said)
    assert leaks(said)[0] < 14
    assert said[-1][1].per_hour == pytest.approx(0.015, rel=0.3)


@settings(max_examples=12, deadline=None)
@given(st.floats(240, 2 * HOUR), st.sampled_from([100.0, 300.0]), st.randoms(use_true_random=False))
def test_a_staircase_is_seen_whatever_its_steps(every: float, rise: float, random: object) -> None:
    noise = Wander(rise / 25, 60, seed=random.randrange(1000))  # type: ignore[attr-defined]
    hours = max(1.6, 8 * every / HOUR)

    said = play(added(stairs(rise, every, base=500), noise), hours)

    assert leaks(said)


def test_steps_that_come_down_again_are_no_staircase() -> None:
    said = play(lambda t: 2000 + 200 * ((t // 600) % 5), 5)

    assert not [hours for hours in leaks(said) if hours > 1]


def test_few_steps_are_told_as_a_staircase_before_an_hour_is_over() -> None:
    said = play(stairs(200, 400, base=1000), 0.9)

    assert any(slow.staircase >= STAIRS for _, slow in said)
    assert not any(slow.leaks for _, slow in said)


def test_what_is_exact_needs_no_second_look() -> None:
    assert leaks(play(fills(300, 2 * HOUR, base=0), 2.2, exact=True))
    assert not leaks(play(lambda t: 12.0, 2, exact=True))


def test_too_short_a_time_says_nothing() -> None:
    assert not play(line(100), 0.3)


def test_fourteen_days_stay_within_four_hundred_points_and_keep_floors() -> None:
    tiers = Tiers()
    t = 0.0
    while t < 15 * 86400:
        tiers.add(t, 7.0 if 86400 <= t % 172800 < 86460 else 100.0, 0.0)
        t += 60

    points = tiers.points()
    assert len(points.times) <= sum(keep / seconds for seconds, keep in TIERS) + 8
    assert list(points.times) == sorted(points.times)
    assert points.times[0] >= t - TIERS[-1][1] - 2 * TIERS[-1][0]
    assert points.values.count(7.0) == 7


@settings(max_examples=25, deadline=None)
# Whose noise was low before the step where the rise was taken to begin, and high at its end.
@example(0.11911088427272375, 3.276680462750386, 0.01157978098191172, 0.0, 113)
@example(0.125, 3.0, 0.0078125, 0.0, 766)
@example(0.25, 4.0, 0.0078125, 0.0, 54)
@example(0.13206332037446794, 2.7660479548541463, 0.011112926331317566, 200.0, 2069)
@example(0.12056625129629249, 3.6162971542858844, 0.011013737624549682, 600.0, 6032)
@given(
    st.floats(0.10, 0.40),
    st.floats(0.4, 5.0),
    st.floats(0.001, 0.012),
    st.sampled_from([0.0, 200.0, 600.0]),
    st.integers(0, 10_000),
)
def test_one_step_and_then_nothing_is_no_leak(size: float, at: float, noisy: float, period: float, seed: int) -> None:
    """A pool or a device of which a tenth to two fifths are taken at once, hours under noise and teeth."""
    noise, teeth = Wander(noisy * WHOLE, 60, seed), saw(period or 1.0, 0.05 * WHOLE if period else 0.0, base=0)
    step = lambda t: 2000 + (size * WHOLE if t >= at * HOUR else 0.0)  # noqa: E731

    assert not leaks(play(added(step, noise, teeth), at + 4, step=30.0))


@pytest.mark.parametrize("apart", [300.0, 1500.0])
def test_two_steps_are_none_and_a_leak_beside_a_step_is_one(apart: float) -> None:
    def two(t: float) -> float:
        return 3000 + 1500 * (t >= 5000) + 1200 * (t >= 5000 + apart)

    assert not leaks(play(added(two, Wander(60, 60)), 6))
    assert leaks(play(added(two, line(0.04 * WHOLE / 60, base=0), Wander(60, 60)), 4))


def test_a_staircase_s_rate_is_what_its_steps_make() -> None:
    said = [slow for _, slow in play(stairs(200, 600, base=1000), 1.5) if slow.staircase >= STAIRS and not slow.leaks]

    assert said
    assert all(slow.low <= slow.per_hour <= slow.high for slow in said)
    assert said[-1].per_hour == pytest.approx(0.12, rel=0.3)
