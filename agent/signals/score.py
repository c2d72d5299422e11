"""Health scores, 0..100 (DESIGN section 6)."""

from __future__ import annotations

from agent.policy.types import Policy
from agent.signals.types import NodeSignals, Score
from agent.state import AgentState, Verdict


def scores(state: AgentState, signals: NodeSignals, verdicts: tuple[Verdict, ...], policy: Policy) -> tuple[Score, ...]:
    """Return the scores of each KV pool, GPU and host, and the least of them per engine, in both forms."""
    return ()
