"""Live compaction of the main pool."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield how compaction stands on each engine that obeys it, and what it has done."""
    for engine, detail in details(state):
        row, label = detail.compaction, (engine,)
        if row is None:
            continue
        yield Sample(c.COMPACTION_STATE, (engine, row.state), 1)
        yield Sample(c.COMPACTION_OFFLINE, label, row.offline)
        if row.released_bytes is not None:
            yield Sample(c.COMPACTION_RELEASED, label, row.released_bytes)
        yield Sample(c.COMPACTION_MOVED, label, row.moved_total)
        yield Sample(c.COMPACTION_MOVED_IDLE, label, row.moved_idle_total)
        yield Sample(c.COMPACTION_DROPPED, label, row.dropped_total)
        yield Sample(c.COMPACTION_GROWN, label, row.grown_total)
        yield Sample(c.COMPACTION_DEMANDED, label, row.demanded_total)
        yield Sample(c.COMPACTION_PAUSE, label, row.pause_seconds)
