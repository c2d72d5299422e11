"""Why requests wait, and whether anything moves."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield waiting requests by reason, and how long the engine has been stalled by what."""
    for engine, detail in details(state):
        row, label = detail.waiting, (engine,)
        if row is None:
            continue
        for reason, requests in sorted(row.reasons.items()):
            yield Sample(c.WAITING_BY_REASON, (engine, reason), requests)
        yield Sample(c.WAITING_UNSEEN, label, row.unseen)
        yield Sample(c.IDLE_STEPS, label, row.idle_steps)
        yield Sample(c.SILENT_REQUESTS, label, row.silent)
        # None says that tokens flow or that nothing is there to do: no second has been lost, and that is known.
        yield Sample(c.STALLED_SECONDS, label, row.stalled_seconds or 0.0)
        if row.stalled_by:
            yield Sample(c.STALLED_BY, (engine, row.stalled_by), 1)
