"""From verdicts to plans: for each verdict that stands what could be done, mildest first. Pure; no clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent.actions.measure import engine_of
from agent.actions.memory import Memory, standing
from agent.actions.rules import RULES, Case, of_silent
from agent.actions.types import Action, Plan
from agent.policy.types import Policy
from agent.state import AgentState, Judgement

_URGENCY = {"page": 0, "warn": 1, "note": 2}


def plans(
    judgement: Judgement, state: AgentState, policy: Policy, memory: Memory, live: Sequence[Action]
) -> Iterator[tuple[Plan, ...]]:
    """Yield for each verdict what could be done about it, mildest first; what somebody is woken for comes first.

    ``state`` carries ``judgement``; ``live``: the actions that have not ended.
    """
    for verdict in sorted(standing(judgement), key=lambda each: _URGENCY[each.tier]):
        engine = engine_of(state, verdict.subject)
        if engine is None or engine.phase not in ("live", "silent"):
            continue
        case = Case(verdict, engine, state, policy, in_force_on(engine.engine, live))
        found = tuple(_of(case, memory.in_vain(verdict)))
        if found:
            yield found


def in_force_on(engine: str, live: Sequence[Action]) -> Mapping[str, Action]:
    """Return what is in force on an engine, by lever."""
    return {each.plan.lever: each for each in live if each.phase == "in_force" and each.plan.subject.engine == engine}


def _of(case: Case, tried: frozenset[str]) -> Iterator[Plan]:
    for rung in case.policy.actions.ladder:
        rule = RULES[rung]
        if of_silent(rule) != (case.engine.phase == "silent"):
            continue
        if case.verdict.kind in rule.kinds and rung not in tried:
            plan = rule.plan(case)
            if plan is not None:
                yield plan
