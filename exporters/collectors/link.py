"""The link between the agent and its engines."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield who is connected, and what was rejected or refused."""
    for engine in state.engines:
        yield Sample(c.LINK_UP, (engine.engine,), engine.link_up)
    link = state.link
    yield Sample(c.LINK_CONNECTIONS, (), link.connections)
    yield Sample(c.LINK_FRAMES, (), link.frames)
    for reason, frames in sorted(link.rejected_frames.items()):
        yield Sample(c.LINK_REJECTED, (reason,), frames)
    for reason, peers in sorted(link.refused_peers.items()):
        yield Sample(c.LINK_REFUSED, (reason,), peers)
    for kind, names in sorted(link.folded_names.items()):
        yield Sample(c.LINK_NAMES_FOLDED, (kind,), names)
