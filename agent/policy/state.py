"""Which policy is in force, for every face."""

from __future__ import annotations

from agent.subject import Value


class PolicyState(Value, frozen=True, kw_only=True):
    """``source``: a profile's name or a file. ``loaded_at``: Unix seconds, of the policy in force. ``problem``: why the
    last attempt to load it again was refused, empty where it was not: then that one is in force.
    """

    source: str
    profile: str
    loaded_at: float
    problem: str = ""
