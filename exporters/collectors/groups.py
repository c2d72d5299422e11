"""KV cache groups."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details, known
from exporters.collectors.rows import once


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each group's references and what its blocks are made of."""
    for engine, detail in details(state):
        for row in once(detail.groups, lambda row: (row.group, row.kind)):
            labels = (engine, str(row.group), row.kind)
            yield from known(c.GROUP_REFERENCES, labels, row.references)
            yield from known(c.GROUP_BLOCK_BYTES, labels, row.block_bytes)
            yield from known(c.GROUP_BLOCK_TOKENS, labels, row.block_tokens)
            yield Sample(c.GROUP_LAYERS, labels, row.layers)
            yield Sample(c.GROUP_COPIES, labels, row.copies)
            yield Sample(c.GROUP_REPLICATED, labels, row.replicated)
