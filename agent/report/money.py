"""What pressure cost, and what it would be worth to have less of it. Every assumption is a field, and is shown."""

from __future__ import annotations

import msgspec

HOUR, YEAR = 3600.0, 365.0 * 86_400.0
# The write-ups' team: 15 % fewer instances, 230,000 saved a year for 15,000 spent, a return of 14.3.
SAVED_RATIO, YEARLY_COST = 0.15, 15_000.0


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """Money is in whatever currency the prices are in. ``hourly_price``: of one engine's instance for an hour.
    ``instances``: how many there are. ``saved_ratio``: the share of them that is not needed once memory is in order.
    ``yearly_saving``: in place of these three. ``yearly_cost``: of running kvtide, people's time included.
    ``request_value``: what a refused request would have brought.
    """

    hourly_price: float | None = None
    instances: float | None = None
    saved_ratio: float = SAVED_RATIO
    yearly_saving: float | None = None
    yearly_cost: float = YEARLY_COST
    request_value: float | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What pressure cost over ``seconds`` of calendar time. Engines' hours; money is None where a price is missing."""

    seconds: float
    rebuild_hours: float
    down_hours: float
    shed: int
    money: float | None
    money_per_year: float | None


def cost(*, seconds: float, rebuild_seconds: float, down_seconds: float, shed: int, given: Assumptions) -> Cost:
    """Return the cost: (rebuild + down time) x hourly price + refused requests x their value.

    Refused requests count nothing without a value; a value alone makes no sum.
    """
    lost = (rebuild_seconds + down_seconds) / HOUR
    money = None
    if given.hourly_price is not None:
        money = lost * given.hourly_price + shed * (given.request_value or 0.0)
    per_year = money * YEAR / seconds if money is not None and seconds > 0 else None
    return Cost(
        seconds=seconds,
        rebuild_hours=rebuild_seconds / HOUR,
        down_hours=down_seconds / HOUR,
        shed=shed,
        money=money,
        money_per_year=per_year,
    )


def yearly_saving(given: Assumptions) -> float | None:
    """Return what is saved a year; None where what it is made from is not given."""
    if given.yearly_saving is not None:
        return given.yearly_saving
    if given.hourly_price is None or given.instances is None:
        return None
    return given.instances * given.saved_ratio * given.hourly_price * YEAR / HOUR


def return_on_investment(given: Assumptions) -> float | None:
    """Return (yearly saving - cost) / cost; None where either is not known, or nothing is spent."""
    saving = yearly_saving(given)
    if saving is None or given.yearly_cost <= 0:
        return None
    return (saving - given.yearly_cost) / given.yearly_cost
