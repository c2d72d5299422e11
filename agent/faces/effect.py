"""What came of an action, in the words that every face has for it."""

from __future__ import annotations

from agent.actions.types import Action

OFF = "Persons' orders are refused, too"  # said where the agent does nothing by itself anyway
VERIFIED = {"helped": "helped", "did_not": "did not help", "not_yet": "being measured", "unknown": "effect not known"}
_LOOKED_AT = frozenset({"in_force", "done", "undone", "expired"})


def came_of(action: Action) -> str:
    """Return whether it helped; nothing where nothing was expected of it, or where it was never in force."""
    return VERIFIED[action.verified] if action.plan.expected is not None and action.phase in _LOOKED_AT else ""
