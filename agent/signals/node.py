"""All signals of a node: folded from one state after the other."""

from __future__ import annotations

from agent.policy.types import Policy
from agent.signals.types import NodeSignals
from agent.state import AgentState


class NodeTracker:
    """Keeps what signals need of the past, bounded; forgets what is gone."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def take(self, state: AgentState) -> NodeSignals:
        """Return the signals at ``state``; states come in the order of their monotonic times."""
        return NodeSignals()
