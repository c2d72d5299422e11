"""Words and times of slow growth that verdicts of GPUs, processes and hosts share."""

from __future__ import annotations

from agent.retained import count_of
from agent.signals.types import Rate, Slow
from agent.units import human_bytes

HOUR = 3600.0
STEPS = 4  # that never came down: a staircase


def leaks(slow: Slow | None) -> bool:
    """Return whether a slow estimate is of a leak: of a slope that stays, or of a staircase, which may have none."""
    return slow is not None and (slow.leaks or slow.staircase >= STEPS)


def amount(slow: Slow, total: int | None) -> str:
    """Return how much a slow growth is: bytes an hour where ``total`` (bytes that ratios are of) is known."""
    if total is None:
        return f"{slow.per_hour:.2%} of the device an hour"
    return f"{human_bytes(slow.per_hour * total)} an hour"


def shape(slow: Slow) -> str:
    """Return how it comes, as the end of a sentence."""
    if slow.staircase:
        return f", in {count_of(slow.staircase, 'step')} that never came down"
    return f"; {slow.retained_ratio:.0%} of what came stayed"


def ends_in(slow: Slow, total: int | None, free: int | None) -> float | None:
    """Return the seconds until ``free`` bytes are gone; None where it isn't known or the rate may be zero."""
    if total is None or free is None or slow.low <= 0:
        return None
    return free / (slow.per_hour * total) * HOUR


def fast_ends_in(rate: Rate | None, total: int | None, free: int | None) -> float | None:
    """The same by a rate of minutes."""
    if rate is None or total is None or free is None or rate.low <= 0:
        return None
    return free / (rate.per_minute * total) * 60
