"""The agent itself."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield what the agent is and whether it can be reached."""
    yield Sample(c.BUILD_INFO, (state.version,), 1)
    yield Sample(c.AGENT_START, (), state.started_at)
    yield Sample(c.AGENT_READY, (), state.ready)
