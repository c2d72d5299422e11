"""Intervals of the score, against values that are published or can be worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.score.stats import percentile, poisson, wilson


def test_wilson_has_the_published_ends() -> None:
    # Newcombe 1998, table I: 81 of 263, method 3, 0.2553 to 0.3662.
    found = wilson(81, 263)
    assert found is not None
    assert found.low == pytest.approx(0.2553, abs=1e-4)
    assert found.high == pytest.approx(0.3662, abs=1e-4)


def test_wilson_of_all_and_of_none() -> None:
    every, none = wilson(20, 20), wilson(0, 20)
    assert every is not None
    assert none is not None
    assert every.high == 1.0
    assert every.low == pytest.approx(0.8389, abs=1e-4)
    assert none.low == 0.0
    assert none.high == pytest.approx(1 - every.low)


def test_nothing_has_no_share() -> None:
    assert wilson(0, 0) is None
    assert poisson(0, 0.0) is None
    assert percentile([], 0.5) is None


@given(st.integers(1, 500), st.data())
def test_wilson_holds_the_share(of: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, of))
    found = wilson(right, of)
    assert found is not None
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_poisson_has_the_published_ends() -> None:
    # Garwood 1936: none seen has the upper end -ln(0.025); ten seen 4.795 to 18.39.
    none, ten = poisson(0, 2.0), poisson(10, 1.0)
    assert none is not None
    assert ten is not None
    assert none.low == 0.0
    assert none.high == pytest.approx(-math.log(0.025) / 2.0, rel=1e-6)
    assert ten.low == pytest.approx(4.7954, abs=1e-3)
    assert ten.high == pytest.approx(18.3904, abs=1e-3)


def test_percentiles_are_values_that_were_there() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert percentile(values, 0.5) == 3.0
    assert percentile(values, 0.95) == 5.0
    assert percentile(values[:1], 0.95) == 5.0
