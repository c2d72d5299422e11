"""The waterfall: where each GPU's memory is."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from agent.waterfall.build import summed
from exporters import catalogue as c
from exporters.collectors.base import Sample


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield the parts of each GPU, those of an engine's processes on it added up, and the remainder."""
    for waterfall in state.waterfalls:
        for part in summed(waterfall.parts):
            labels = (waterfall.gpu, part.part, part.owner)
            yield Sample(c.WATERFALL_BYTES, labels, part.bytes)
            yield Sample(c.WATERFALL_ERROR_BYTES, labels, part.error_bytes)
        if waterfall.unattributed_bytes is not None:
            rest = (waterfall.gpu, "unattributed", "")
            yield Sample(c.WATERFALL_BYTES, rest, waterfall.unattributed_bytes)
            yield Sample(c.WATERFALL_ERROR_BYTES, rest, waterfall.error_bytes)
