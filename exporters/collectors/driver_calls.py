"""How long the driver's memory calls take, seen from outside."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, sound
from exporters.collectors.rows import once


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each engine's calls, by function."""
    rows = state.driver_calls.calls if state.driver_calls is not None else ()
    for row in once(rows, lambda row: (row.engine, row.call)):
        labels = (row.engine, row.call)
        yield from sound(c.DRIVER_CALL_SECONDS, labels, row.seconds)
        yield Sample(c.DRIVER_CALL_FAILURES, labels, row.failures_total)
