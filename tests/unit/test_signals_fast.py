"""The fast estimator: what must not look like growth, and the twin that must."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.signals.fast import IN_TEETH, TOO_SHORT, Exact, Fast
from tests.unit.series import Shape, Wander, added, fills, line, saw, stairs, triangle

WHOLE = 10_000.0


def play(
    shape: Shape, seconds: float, *, after: float = 0.0, begin: float = 0.0, scale: float = 1.0, step: float = 1.0
) -> tuple[Fast, list[float]]:
    """Run ``shape`` through the estimator; return it, and when growth was sure, from ``after`` on."""
    fast, sure, t = Fast(), [], 0.0
    while t < seconds:
        fast.add(begin + t, scale * shape(t), scale * WHOLE, step)
        if t >= after and fast.rate is not None and fast.rate.low > 0:
            sure.append(t)
        t += step
    return fast, sure


def test_a_steady_rise_is_seen_within_a_minute_and_a_quarter() -> None:
    fast, sure = play(line(per_minute=600), 180)

    assert sure[0] <= 75
    assert fast.rate is not None
    assert fast.rate.per_minute == pytest.approx(0.06, rel=0.01)
    assert fast.rate.low <= fast.rate.per_minute <= fast.rate.high
    assert fast.acceleration == 0.0


def test_a_window_that_is_too_short_gives_no_value() -> None:
    fast, sure = play(line(per_minute=600), 45)

    assert fast.rate is None
    assert fast.reason == TOO_SHORT
    assert not sure


@settings(max_examples=25, deadline=None)
@given(st.floats(60, 300), st.sampled_from([200.0, 1000.0, 5000.0]), st.sampled_from([saw, triangle]))
def test_a_saw_tooth_without_trend_is_no_growth(period: float, amplitude: float, kind: type) -> None:
    shape = kind(period, amplitude)

    fast, sure = play(shape, 2400, after=2.2 * period)

    assert not sure
    assert fast.saw is not None
    assert fast.saw.amplitude == pytest.approx(amplitude, rel=0.2)
    assert fast.saw.period_seconds == pytest.approx(period, abs=10)  # each end lies in a bin of 5 s


@settings(max_examples=15, deadline=None)
@given(st.floats(60, 240), st.sampled_from([1000.0, 3000.0]), st.sampled_from([0.02, 0.05]))
def test_a_trend_under_a_saw_tooth_is_growth(period: float, amplitude: float, per_minute: float) -> None:
    shape = added(saw(period, amplitude, base=0), line(per_minute * WHOLE, base=500))

    fast, sure = play(shape, 1700)

    assert sure
    assert fast.rate is not None
    assert fast.rate.low > 0
    assert fast.rate.per_minute == pytest.approx(per_minute, rel=0.35)


def test_a_rising_tooth_is_not_growth_until_it_rises_above_all_before_it() -> None:
    def shape(t: float) -> float:
        return saw(120, 2000)(t) if t < 720 else 3000 + 2000 * (t - 720) / 120

    fast, sure = play(shape, 1000, after=300)

    assert sure[0] > 720 + 120
    assert sure[0] < 720 + 240
    assert fast.rate is not None
    assert fast.rate.per_minute == pytest.approx(0.1, rel=0.2)


def test_few_teeth_give_no_value_and_say_why() -> None:
    fast, _ = play(saw(200, 2000), 350)

    assert fast.rate is None
    assert fast.reason == IN_TEETH


@pytest.mark.parametrize("at", [60, 90, 120, 150])
def test_one_step_is_no_growth(at: float) -> None:
    noise = Wander(20, 5)
    _, sure = play(lambda t: 3000 + (1500 if t >= at else 0) + noise(t), 400)

    assert not sure


def test_what_wanders_is_no_growth() -> None:
    wandering = 0
    for seed in range(8):
        noise = Wander(300, 60, seed)
        _, sure = play(lambda t, noise=noise: 4000 + noise(t), 1800)  # type: ignore[misc]
        wandering += len(sure)

    assert wandering <= 0.04 * 8 * 1800


def test_a_rise_in_what_wanders_is_growth() -> None:
    noise = Wander(100, 30)
    _, sure = play(added(noise, line(per_minute=800, base=1000)), 300)

    assert sure


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 2**40), st.floats(0.01, 1000))
def test_neither_the_clock_nor_the_unit_matters(begin: int, scale: float) -> None:
    shape = added(saw(100, 1000, base=0), line(300, base=500))

    one, _ = play(shape, 900)
    other, _ = play(shape, 900, begin=float(begin), scale=scale)

    assert one.rate is not None
    assert other.rate is not None
    assert other.rate.per_minute == pytest.approx(one.rate.per_minute, rel=1e-3)
    assert (other.rate.low > 0) == (one.rate.low > 0)


def test_growth_that_levels_off_stops_being_growth() -> None:
    fast, sure = play(fills(4000, 60), 600)

    assert sure
    assert sure[-1] < 500
    assert fast.rate is not None
    assert fast.rate.low <= 0


def test_acceleration_and_doubling_are_seen_and_a_line_has_none() -> None:
    fast, _ = play(lambda t: 1000 + 100 * 2 ** (t / 60), 300)

    assert fast.acceleration is not None
    assert fast.acceleration > 0
    assert fast.doubling_seconds == pytest.approx(60, rel=0.15)
    steady, _ = play(line(600), 300)
    assert steady.acceleration == 0.0
    assert steady.doubling_seconds is None


@pytest.mark.parametrize("step", [5.0, 15.0, 30.0])
def test_samples_that_come_seldom_are_enough_in_a_longer_window(step: float) -> None:
    fast, _ = play(line(per_minute=300), 600, step=step)

    assert fast.rate is not None
    assert fast.rate.per_minute == pytest.approx(0.03, rel=0.05)


def test_what_is_exact_grows_by_lumps_and_not_by_one_of_them() -> None:
    exact = Exact()
    for t in range(400):
        exact.add(t, stairs(7, 20, base=0)(t), WHOLE)
    assert exact.rate is not None
    assert exact.rate.low > 0
    assert exact.rate.per_minute == pytest.approx(21 / WHOLE, rel=0.15)

    once = Exact()
    for t in range(400):
        once.add(t, 500.0 if t > 150 else 0.0, WHOLE)
    assert once.rate is not None
    assert once.rate.low <= 0
    assert once.rate.per_minute == pytest.approx(0.0, abs=1e-3)
