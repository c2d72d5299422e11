"""Leaks, by who held the blocks last."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details
from exporters.collectors.rows import folded


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield leaked blocks by kind, tenant and how the tenant's request ended."""
    for engine, detail in details(state):
        rows = folded(detail.leaks, lambda row: row.tenant, lambda row: row.blocks, lambda row: (row.kind, row.ending))
        for (tenant, (kind, ending)), found in rows.items():
            yield Sample(c.LEAKED, (engine, kind, tenant, ending), sum(row.blocks for row in found))
