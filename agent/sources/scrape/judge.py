"""What a scraped engine's numbers mean: pressure, stall, a page that says nothing new, impossible values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.retained import count_of
from agent.sources.scrape.families import Reading
from agent.sources.scrape.history import Trend
from agent.sources.scrape.page import Rejected
from agent.sources.scrape.state import ScrapedFinding
from agent.units import human_seconds

STALE_SECONDS = 30.0
STALLED_SECONDS = 30.0  # three times what hooks need: a page moves only when its server gets to it
FULL_RATIO = 0.9


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


def stale_finding(why: str) -> ScrapedFinding:
    """Return the finding for what :func:`stale` has said."""
    return ScrapedFinding(kind="sensor_stale", sentence=f"{why[:1].upper()}{why[1:]}.")


def judged(reading: Reading, trend: Trend) -> Iterable[str]:
    """Yield the kinds of findings that can be looked for on a page that is not stale."""
    if reading.preemptions is not None or (reading.usage is not None and reading.waiting is not None):
        yield "kv_pressure"
    if trend.stalled_seconds is not None:
        yield "kv_stall"


def findings(reading: Reading, trend: Trend) -> Iterable[ScrapedFinding]:
    """Yield what is wrong on a page that is not stale."""
    if harm := _harm(reading, trend):
        use = "" if reading.usage is None else f"{reading.usage:.0%} held, "
        yield ScrapedFinding(kind="kv_pressure", sentence=f"The pool is short: {use}{harm}.")
    if trend.stalled_seconds is not None and trend.stalled_seconds >= STALLED_SECONDS:
        running = "none running" if not reading.running else f"{count_of(int(reading.running), 'request')} running"
        sentence = f"No token for {human_seconds(trend.stalled_seconds)}, with {running}"
        yield ScrapedFinding(kind="kv_stall", sentence=f"{sentence} and {_waiting(reading):,} waiting.")


def bad_metric(rejected: Sequence[Rejected]) -> Iterable[ScrapedFinding]:
    """Yield what the page says that can't be."""
    if rejected:
        name, value, _ = rejected[0]
        more = f", and {len(rejected) - 1} more" if len(rejected) > 1 else ""
        sentence = f"The engine says {name} = {value:.4g}, which can't be; not used{more}."
        yield ScrapedFinding(kind="bad_metric", sentence=sentence)


def _harm(reading: Reading, trend: Trend) -> str:
    parts = []
    if reading.usage is not None and reading.usage >= FULL_RATIO and reading.waiting:
        parts.append(f"{count_of(int(reading.waiting), 'request')} waiting")
    if trend.preempted:
        parts.append(f"{count_of(int(trend.preempted), 'preemption')} in the last half minute")
    return ", ".join(parts)


def _waiting(reading: Reading) -> int:
    return int((reading.waiting or 0) + (reading.swapped or 0))
