"""References that connectors and offload jobs hold."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details, known
from exporters.collectors.rows import folded, greatest, least


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield who pins how much, and for how long."""
    for engine, detail in details(state):
        rows = folded(detail.pins, lambda row: row.holder, lambda row: row.references, lambda row: row.pool)
        for (holder, pool), found in rows.items():
            labels = (engine, holder, pool)
            yield Sample(c.PINNED_REFERENCES, labels, sum(row.references for row in found))
            yield from known(c.PINNED_OLDEST, labels, greatest(row.oldest_seconds for row in found))
            yield from known(c.PINNED_LIMIT, labels, least(row.orphaned_after_seconds for row in found))
