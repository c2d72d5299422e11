"""Marks: a person holds an engine at the load balancer, or rolls it out, and the agent keeps out of the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from agent.subject import Value

# drain, maint: no new requests. up: all its share, whatever is measured. rollout: the agent touches nothing there.
Held = Literal["drain", "maint", "up", "rollout"]
HELD: tuple[Held, ...] = get_args(Held)
YIELDS = frozenset({"drain", "maint", "rollout"})


class Mark(Value, frozen=True, kw_only=True):
    """``since`` and ``until`` are Unix seconds; None: until it is taken off."""

    engine: str
    mark: Held
    by: str
    since: float
    until: float | None = None
    why: str = ""

    def __str__(self) -> str:
        return f"{self.by}: {self.mark}{self.why and f' ({self.why})'}"


def mark_of(marks: Sequence[Mark], engine: str, now: float) -> Mark | None:
    """Return the mark that stands on an engine; None without one. ``now``: Unix seconds."""
    return next((each for each in marks if each.engine == engine and (each.until is None or each.until > now)), None)


def yields_of(marks: Sequence[Mark], now: float) -> dict[str, str]:
    """Return why nothing is done, by engine."""
    standing = (each for each in marks if each.mark in YIELDS and (each.until is None or each.until > now))
    return {each.engine: f"held by {each}" for each in standing}
