"""How long something is to last, as people say it on a command line."""

from __future__ import annotations

from agent.errors import ConfigError

MOST_MINUTES = 525_600.0  # a year


def minutes_of(value: float) -> float:
    """Return ``value`` where it is a length of time; raises :class:`ConfigError`. NaN is none, and no JSON has it."""
    if not 0 < value <= MOST_MINUTES:
        raise ConfigError(f"--minutes: {value:g}: must be above 0, {MOST_MINUTES:,.0f} at most")
    return value
