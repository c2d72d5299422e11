"""The waterfall: where each GPU's memory is."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from agent.waterfall.build import summed
from exporters import catalogue as c
from exporters.collectors.base import Sample

_REST = ("unattributed", "")


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield the parts of each GPU, those of an engine's processes on it added up, and the remainder."""
    for waterfall in state.waterfalls:
        for part in summed(waterfall.parts):
            yield Sample(c.WATERFALL_BYTES, (waterfall.gpu, part.part, part.owner), part.bytes)
        if waterfall.unattributed_bytes is not None:
            yield Sample(c.WATERFALL_BYTES, (waterfall.gpu, *_REST), waterfall.unattributed_bytes)


def collect_detail(state: AgentState) -> Iterator[Sample]:
    """Yield how wrong each of them may be."""
    for waterfall in state.waterfalls:
        for part in summed(waterfall.parts):
            yield Sample(c.WATERFALL_ERROR_BYTES, (waterfall.gpu, part.part, part.owner), part.error_bytes)
        if waterfall.unattributed_bytes is not None:
            yield Sample(c.WATERFALL_ERROR_BYTES, (waterfall.gpu, *_REST), waterfall.error_bytes)
