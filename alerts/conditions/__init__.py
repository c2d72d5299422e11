"""Conditions that alert: one file per subject, each a function of the policy. The pages are few."""

from __future__ import annotations

from agent.policy.types import Policy
from alerts.conditions import actions, device, host, kv, node, serving
from alerts.rule import Group

_SUBJECTS = (kv, serving, device, host, actions, node)


def groups(policy: Policy) -> tuple[Group, ...]:
    """Return the groups of alerts for ``policy``."""
    return tuple(Group(f"kvtide-{each.__name__.rpartition('.')[2]}", each.alerts(policy)) for each in _SUBJECTS)
