"""Whether a trend is told from noise, both ways."""

from __future__ import annotations

import math
import random

import pytest

from tests.bed.trend import student, trend

HALF_HOUR = [2.0 * number for number in range(900)]


def noisy(per_hour: float, seed: int) -> list[tuple[float, float]]:
    """Half an hour around 60, with noise that goes on for a while, as a heap's does."""
    draw, drift, found = random.Random(seed), 0.0, []
    for at in HALF_HOUR:
        drift = 0.8 * drift + draw.gauss(0.0, 0.1)
        found.append((at, 60.0 + per_hour * at / 3600 + drift))
    return found


def test_a_leak_is_told_from_noise_and_noise_from_a_leak() -> None:
    assert sum(trend(noisy(0.0, seed)).grows for seed in range(200)) <= 10
    assert all(trend(noisy(2.0, seed)).grows for seed in range(200))
    assert not any(trend(noisy(-2.0, seed)).grows for seed in range(200))


def test_a_line_is_itself() -> None:
    found = trend([(at, 7.0 + at / 3600) for at in HALF_HOUR])
    assert math.isclose(found.slope, 1.0)
    assert math.isclose(found.low, found.high)
    assert not trend([(at, 7.0) for at in HALF_HOUR]).grows


def test_what_has_no_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        trend([(0.0, 1.0), (1.0, 2.0)])


@pytest.mark.parametrize(("free", "known"), [(5, 2.571), (10, 2.228), (18, 2.101), (60, 2.000)])
def test_student(free: int, known: float) -> None:
    assert student(free) == pytest.approx(known, rel=0.005)
