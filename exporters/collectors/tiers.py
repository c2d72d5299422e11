"""Tiers that KV is offloaded to."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details, known
from exporters.collectors.rows import once


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each tier's blocks and transfers."""
    for engine, detail in details(state):
        for row in once(detail.tiers, lambda row: row.tier):
            labels = (engine, row.tier)
            yield from known(c.TIER_CAPACITY, labels, row.capacity)
            yield from known(c.TIER_USED, labels, row.used)
            yield from known(c.TIER_CACHED, labels, row.cached)
            yield Sample(c.TIER_PENDING, labels, row.pending)
            yield from known(c.TIER_OLDEST, labels, row.oldest_seconds)
            yield Sample(c.TIER_ABANDONED, labels, row.abandoned)
            yield Sample(c.TIER_UNSEEN, labels, row.unseen)
            yield Sample(c.TIER_STUCK, labels, row.stuck)
            yield Sample(c.TIER_STUCK_AFTER, labels, row.stuck_after_seconds)
