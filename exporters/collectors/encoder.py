"""The encoder cache."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield what the encoder cache holds, and what of it is leaked."""
    for engine, detail in details(state):
        row, label = detail.encoder, (engine,)
        if row is None:
            continue
        yield Sample(c.ENCODER_CAPACITY, label, row.capacity)
        yield Sample(c.ENCODER_HELD, label, row.held)
        yield Sample(c.ENCODER_FREEABLE, label, row.freeable)
        yield Sample(c.ENCODER_ORPHANED, label, row.orphaned_tokens)
        yield Sample(c.ENCODER_ENTRIES, label, row.entries)
        yield Sample(c.ENCODER_ENTRIES_ORPHANED, label, row.orphaned_entries)
