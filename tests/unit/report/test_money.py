"""What pressure cost and what less of it is worth: the write-ups' figures, and what can't be told."""

from __future__ import annotations

import pytest

from agent.report.money import Assumptions, cost, return_on_investment, yearly_saving


def test_the_write_ups_return() -> None:
    given = Assumptions(yearly_saving=230_000.0, yearly_cost=15_000.0)
    assert return_on_investment(given) == pytest.approx(14.333, abs=0.001)


def test_a_saving_is_instances_times_share_times_price() -> None:
    given = Assumptions(hourly_price=2.0, instances=100.0, saved_ratio=0.15)
    assert yearly_saving(given) == pytest.approx(100 * 0.15 * 2.0 * 8760)


@pytest.mark.parametrize("given", [Assumptions(), Assumptions(hourly_price=2.0), Assumptions(instances=4.0)])
def test_without_a_price_or_instances_there_is_no_sum(given: Assumptions) -> None:
    assert yearly_saving(given) is None
    assert return_on_investment(given) is None


def test_nothing_spent_has_no_return() -> None:
    assert return_on_investment(Assumptions(yearly_saving=10.0, yearly_cost=0.0)) is None


def test_cost_of_pressure() -> None:
    given = Assumptions(hourly_price=10.0, request_value=0.5)
    spent = cost(seconds=86_400.0, rebuild_seconds=7200.0, down_seconds=1800.0, shed=40, given=given)
    assert (spent.rebuild_hours, spent.down_hours) == (2.0, 0.5)
    assert spent.money == pytest.approx(2.5 * 10.0 + 40 * 0.5)
    assert spent.money_per_year == pytest.approx(45.0 * 365)


def test_no_price_is_no_cost_of_nothing() -> None:
    spent = cost(
        seconds=86_400.0, rebuild_seconds=7200.0, down_seconds=0.0, shed=40, given=Assumptions(request_value=1)
    )
    assert spent.money is None
    assert spent.money_per_year is None
