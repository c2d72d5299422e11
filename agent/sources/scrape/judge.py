"""What of a page can't be believed: numbers that are not of now, and values that can't be."""

from __future__ import annotations

from collections.abc import Sequence

from agent.retained import count_of
from agent.sources.scrape.families import Reading
from agent.sources.scrape.history import Trend
from agent.sources.scrape.page import Rejected
from agent.units import human_seconds

STALE_SECONDS = 30.0


def stale(reading: Reading, trend: Trend, page_age: float) -> str:
    """Say why this page can't be believed to be of now; empty when it can."""
    if page_age > STALE_SECONDS:
        return f"the page itself is {human_seconds(page_age)} old, by its own word"
    if reading.running and trend.unchanged_seconds >= STALE_SECONDS:
        return (
            f"nothing on its page has changed for {human_seconds(trend.unchanged_seconds)}, with "
            f"{count_of(int(reading.running), 'request')} said to run: either the engine hangs, or those requests are "
            "gone and it has not said so (its numbers stand still after a mass abort)"
        )
    return ""


def impossible(rejected: Sequence[Rejected]) -> str:
    """Say what the page says that can't be; empty when there is nothing."""
    if not rejected:
        return ""
    name, value, _ = rejected[0]
    more = f", and {len(rejected) - 1} more" if len(rejected) > 1 else ""
    return f"The engine says {name} = {value:.4g}, which can't be; not used{more}."
