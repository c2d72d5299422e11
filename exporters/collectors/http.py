"""The agent's own HTTP port."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield who is connected, and what was turned away."""
    http = state.http
    if http is None:
        return
    yield Sample(c.HTTP_CONNECTIONS, (), http.connections)
    yield Sample(c.HTTP_CONFIG_UP, (), not http.problem)
    for reason, times in sorted(http.refused.items()):
        yield Sample(c.HTTP_REFUSED, (reason,), times)
