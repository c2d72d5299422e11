"""Delayed frees, by peer and direction."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details, known
from exporters.collectors.rows import folded, greatest, least


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield what is kept for whom, for how long, and against which lease."""
    for engine, detail in details(state):
        rows = folded(detail.delayed, lambda row: row.peer, lambda row: row.blocks, lambda row: row.direction)
        for (peer, direction), found in rows.items():
            labels = (engine, peer, direction)
            yield Sample(c.DELAYED_BLOCKS, labels, sum(row.blocks for row in found))
            yield Sample(c.DELAYED_REQUESTS, labels, sum(row.requests for row in found))
            yield from known(c.DELAYED_OLDEST, labels, greatest(row.oldest_seconds for row in found))
            yield Sample(c.DELAYED_EXPIRED, labels, sum(row.expired for row in found))
            yield from known(c.DELAYED_LEASE, labels, least(row.lease_seconds for row in found))
        shares = [share for row in detail.delayed or () for share in row.tenants.items()]
        for (tenant, _), parts in folded(shares, lambda share: share[0], lambda share: share[1], lambda _: "").items():
            yield Sample(c.DELAYED_TENANT_BLOCKS, (engine, tenant), sum(blocks for _, blocks in parts))
        if detail.transfer_id:
            yield Sample(c.TRANSFER_INFO, (engine, detail.transfer_id), 1)
