"""A change of a weight on its way: written down before load balancers are told, refused with a reason where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agent.actions.types import Refusal
from agent.balancer.state import Weight
from agent.subject import Value

AGENT = "agent"


class Move(Value, frozen=True, kw_only=True):
    """``engine`` gets ``now`` in the place of ``before``. ``by``: agent, or the person who wants it."""

    engine: str
    before: Weight
    now: Weight
    by: str = AGENT

    @property
    def takes(self) -> bool:
        """Whether the agent takes something away by it: no act without its intent. What is given back never waits."""
        return self.by == AGENT and self.now.percent < self.before.percent


# Told whether the intent is on the disk; says whether the move was made.
Decide = Callable[[bool], bool]


class Moves(Protocol):
    """Where moves are written down."""

    def begin(self, move: Move, decide: Decide) -> None:
        """Write the intent of ``move``, then let ``decide`` make it, then write what came of it."""

    def refuse(self, engine: str, refusal: Refusal | None) -> None:
        """Hear at each look why an engine does not get less although its numbers ask for it; None: nothing is in the
        way, or nothing is asked for.
        """

    def keep(self, body: bytes) -> None:
        """Keep what the next agent is to know."""

    def kept(self) -> bytes | None:
        """Return what the agent before this one has kept, empty where nothing; None while that is not known."""
