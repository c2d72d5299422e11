"""Levers that the agent pulls itself, or has a supervisor pull; and what comes before an order to a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from agent.actions.types import Outcome, Plan

# Of no process's: the first is the agent's own weight at the load balancer, which is no action of a plan's.
WEIGHT = "weight"
SUPERVISED = frozenset({"restart"})

# Why it must not be done any more, empty where it may: what takes minutes asks again and again, for a person may have
# switched off meanwhile.
Forbidden = Callable[[], str]


class OwnLever(Protocol):
    """One lever. What it does has no lease and is not taken back."""

    def why_not(self, engine: str) -> str:
        """Return why it can't be pulled on an engine, empty where it may be tried."""
        ...

    async def would(self, plan: Plan) -> Outcome:
        """Return what it would do: the code ``would``, or why not."""
        ...

    async def apply(self, plan: Plan, forbidden: Forbidden) -> Outcome:
        """Do it: the code ``done``, one that refuses (nothing was begun then), or ``failed``. Raises nothing."""
        ...


class Prepares(Protocol):
    """What is done before a lever's order is sent to its processes."""

    async def prepare(self, plan: Plan, forbidden: Forbidden) -> str:
        """Return why it may not be sent, empty when all is ready. Raises nothing."""
        ...


OwnLevers = Mapping[str, OwnLever]
