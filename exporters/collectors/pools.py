"""Block pools beside the main one."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details, known
from exporters.collectors.rows import once


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each pool's blocks, and those that are leaked where that can be known."""
    for engine, detail in details(state):
        for row in once(detail.pools, lambda row: row.pool):
            labels = (engine, row.pool)
            yield Sample(c.POOL_CAPACITY, labels, row.capacity)
            yield Sample(c.POOL_HELD, labels, row.held)
            yield from known(c.POOL_ORPHANED, labels, row.orphaned)
            yield from known(c.POOL_OVER_FREED, labels, row.over_freed)
