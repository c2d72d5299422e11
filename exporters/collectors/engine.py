"""Engines: who is there, whether it reports, and its requests."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, known


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each engine's identity, liveness and load."""
    for engine in state.engines:
        label = (engine.engine,)
        identity = (engine.engine, engine.told_id or engine.engine_id, engine.engine_version, engine.hooks_version)
        yield Sample(c.ENGINE_INFO, identity, 1)
        yield Sample(c.ENGINE_START, label, engine.started_at)
        yield Sample(c.ENGINE_UP, label, engine.phase == "live")
        yield from known(c.ENGINE_REPORT_AGE, label, engine.report_age_seconds)
        yield from known(c.ENGINE_STEPS, label, engine.steps)
        yield from known(c.REQUESTS_RUNNING, label, engine.running)
        yield from known(c.REQUESTS_WAITING, label, engine.waiting)
