"""Health scores."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample
from exporters.collectors.rows import once


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each score in both forms."""
    found = state.judgement.scores if state.judgement else ()
    for score in once(found, lambda each: (each.scope, each.engine, each.gpu, each.form)):
        yield Sample(c.HEALTH_SCORE, (score.scope, score.engine, score.gpu, score.form), score.value)
