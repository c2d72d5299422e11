"""Verdicts that stand."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield one sample per verdict, with its phase."""
    for engine in state.engines:
        for verdict in engine.verdicts:
            yield Sample(c.VERDICT, (engine.engine, verdict.kind, verdict.phase), 1)
