"""Who counts how many engines of the whole fleet are below 50 %: what a coordinator is, and the one that is none.

A coordinator that fails has granted nothing. A grant is a lease: whoever has it renews it, and it ends by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from agent.subject import Value

LEASE_SECONDS = 60.0  # of a grant, and of an engine's place among those that are counted
TIMEOUT_SECONDS = 4.0  # of one call: a lease lasts over several that fail


class CoordinatorError(Exception):
    """It could not be asked, or what it said can't be understood; the text says why."""


class Grant(Value, frozen=True, kw_only=True):
    """``why`` says why it is not granted. ``fleet``: engines that are known; ``ejected``: how many have a grant now."""

    granted: bool
    why: str = ""
    fleet: int | None = None
    ejected: int | None = None


class Coordinator(Protocol):
    """Counts ejections. Engines are named as they are on their node; a coordinator knows the node. All of it raises
    :class:`CoordinatorError`, and returns within :data:`TIMEOUT_SECONDS` or is cut off.
    """

    name: str

    async def alive(self, engines: Sequence[str]) -> None:
        """Say which engines are here, again and again: they count for the share until their lease ends."""

    async def grant(self, engine: str) -> Grant:
        """Ask that ``engine`` may be below 50 % for :data:`LEASE_SECONDS`, or go on being so."""

    async def release(self, engine: str) -> None:
        """Give a grant back; to have none is no error."""

    async def close(self) -> None:
        """End connections."""


class NoCoordinator:
    """Nobody counts, so nothing is granted."""

    name = "none"

    async def alive(self, engines: Sequence[str]) -> None:
        """There is nobody to tell."""

    async def grant(self, engine: str) -> Grant:
        """Refuse."""
        return Grant(granted=False, why="there is no coordinator (balancer.coordinator)")

    async def release(self, engine: str) -> None:
        """There is nothing to give back."""

    async def close(self) -> None:
        """There is nothing to end."""


def verdict(fleet: int, others: int, share: float) -> Grant:
    """Return whether one more may be ejected: ``others`` of ``fleet`` engines are, ``share`` of it may be."""
    most = most_of(fleet, share)
    if others < most:
        return Grant(granted=True, fleet=fleet, ejected=others + 1)
    why = f"{others} of {fleet} are below 50 % already, {most} may be"
    return Grant(granted=False, why=why, fleet=fleet, ejected=others)


def most_of(fleet: int, share: float) -> int:
    """Return how many of ``fleet`` engines may be ejected at once: rounded down, but not by an error of the float."""
    return math.floor(fleet * share + 1e-9)
