"""What the agent does about verdicts, and the policy it does it by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from agent.actions.types import Mode
from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield how actions ended, what is refused and what is in force."""
    if state.policy is not None:
        yield Sample(c.POLICY_LOADED, (), not state.policy.problem)
        yield Sample(c.POLICY_LOADED_AT, (), state.policy.loaded_at)
    actions = state.actions
    if actions is None:
        return
    for ended in actions.done:
        yield Sample(c.ACTIONS, (ended.lever, ended.code), ended.count)
    for refused in actions.refused:
        yield Sample(c.ACTION_REFUSALS, (refused.lever, refused.code), refused.count)
    in_force = {(each.plan.subject.engine, each.plan.lever) for each in actions.recent if each.phase == "in_force"}
    for engine, lever in sorted(in_force):
        yield Sample(c.ACTION_IN_FORCE, (engine, lever), 1)
    for mode in get_args(Mode):
        yield Sample(c.ACTIONS_MODE, (mode,), mode == actions.mode)
    if actions.mode != "observe":
        yield Sample(c.ACTIONS_BLOCKED, (), bool(actions.problem))
    if actions.budget_left is not None:
        yield Sample(c.ACTIONS_BUDGET, (), actions.budget_left)
    yield Sample(c.BREAKER_OPEN, (), actions.breaker.open)
