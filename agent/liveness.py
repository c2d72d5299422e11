"""How long silence may last before somebody is gone, by what they said their own period is."""

from __future__ import annotations

from engine_hooks.wire import Hello

MIN_PERIOD, MAX_PERIOD = 0.1, 10.0  # what a process may claim as its report period, in seconds

# A process whose link ended comes back within 2 s if it lives; its series must be gone within 3 periods if it does not.
LOST_PERIODS, RETURN_SECONDS = 2.0, 2.0


def period_of(hello: Hello) -> float:
    """Seconds between two words of an idle process, within bounds."""
    return min(max(MIN_PERIOD, hello.idle_period_seconds), MAX_PERIOD)  # in this order NaN gives MIN_PERIOD


def has_gone(hello: Hello, quiet: float) -> bool:
    """Whether a process whose link ended ``quiet`` seconds ago will not come back."""
    return quiet > max(RETURN_SECONDS, LOST_PERIODS * period_of(hello))
