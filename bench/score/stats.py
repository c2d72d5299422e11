"""Intervals of confidence for shares and for rates of rare events."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

_Z = NormalDist().inv_cdf(0.975)


class Interval(NamedTuple):
    """A share or a rate, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(right: int, of: int) -> Interval | None:
    """Return the share ``right / of`` with Wilson's interval (1927); None of nothing."""
    if of <= 0:
        return None
    share, z2 = right / of, _Z * _Z
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    reach = _Z / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    # At the ends the formula gives the end itself but for rounding.
    low = 0.0 if right == 0 else max(0.0, middle - reach)
    high = 1.0 if right == of else min(1.0, middle + reach)
    return Interval(share, low, high)


def poisson(number: int, exposure: float) -> Interval | None:
    """Return the rate ``number / exposure`` with the exact interval (Garwood 1936); None without exposure."""
    if exposure <= 0:
        return None
    low = 0.0 if number == 0 else _solve(lambda mean: 1 - _below(number, mean) - 0.025, float(number))
    high = _solve(lambda mean: 0.025 - _below(number + 1, mean), number + 1.0)
    return Interval(number / exposure, low / exposure, high / exposure)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that ``share`` of all do not exceed; None of none."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, math.ceil(share * len(ranked)) - 1))]


def _below(number: int, mean: float) -> float:
    """Return the probability of fewer than ``number`` events where ``mean`` are expected."""
    if number <= 0:
        return 0.0
    return min(1.0, math.fsum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(number)))


def _solve(rising: Callable[[float], float], near: float) -> float:
    """Return where ``rising`` crosses zero, by halving."""
    low, high = 1e-12, max(10.0, near * 4 + 20)
    for _ in range(200):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
