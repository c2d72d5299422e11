"""Speculative drafts."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield what was drafted and accepted, and what interruptions left behind."""
    for engine, detail in details(state):
        row, label = detail.speculation, (engine,)
        if row is None:
            continue
        yield Sample(c.DRAFTED, label, row.drafted_tokens_total)
        yield Sample(c.ACCEPTED, label, row.accepted_tokens_total)
        yield Sample(c.ROUNDS, label, row.rounds_total)
        yield Sample(c.INTERRUPTIONS, label, row.interruptions_total)
        yield Sample(c.RESIDUE, label, row.residue_blocks_total)
        for name, requests in sorted(row.states.items()):
            yield Sample(c.SPECULATION_REQUESTS, (engine, name), requests)
        yield Sample(c.SPECULATION_STUCK, label, row.stuck)
        yield Sample(c.SPECULATION_STUCK_AFTER, label, row.stuck_after_seconds)
