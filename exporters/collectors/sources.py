"""Sources: the health of what the agent reads by itself."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, known


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each source's health."""
    for source in state.sources:
        labels = (source.source,)
        yield Sample(c.SOURCE_UP, labels, source.up)
        yield from known(c.SOURCE_READ_SECONDS, labels, source.read_seconds)
        yield Sample(c.SOURCE_READS_TOTAL, labels, source.reads)
        yield Sample(c.SOURCE_FAILURES_TOTAL, labels, source.failures)
