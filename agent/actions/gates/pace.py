"""Whether it is time: not at the first sign, not twice at once, not again and again."""

from __future__ import annotations

from collections.abc import Sequence

from agent.actions.gates.question import Question, refuse
from agent.actions.own import WEIGHT
from agent.actions.types import LIVE_PHASES, Action, Refusal
from agent.policy.types import Policy
from agent.units import human_seconds

HOUR = 3600.0
# What gives back what is nobody's takes nothing from anyone, and its own number moves by nothing else: it need not wait
# for what a throttle does, which may take a minute while the leak holds the pool.
CURES = frozenset({"reclaim_orphans", "reclaim_delayed"})


def hysteresis(question: Question) -> Refusal | None:
    """A verdict must stand for some looks."""
    needed = question.policy.actions.breaches
    if question.breaches >= needed:
        return None
    return refuse("hysteresis", f"{question.plan.kind} has stood at {question.breaches} looks, {needed} are needed")


def busy(question: Question) -> Refusal | None:
    """Never two levers at once on one engine, nor one while it is not known what another does: a cure aside."""
    plan = question.plan
    for each in question.recent:
        if each.plan.subject.engine != plan.subject.engine:
            continue
        cures = plan.lever in CURES and each.plan.lever != plan.lever
        waits = each.verified == "not_yet" and not question.by_person and not cures
        if each.phase == "done" and waits:
            return refuse("busy", f"what {each.plan.lever} has done is still being measured (action {each.id})")
        if each.phase not in LIVE_PHASES:
            continue
        if each.phase != "in_force":
            return refuse("busy", f"{each.plan.lever} is being pulled on {plan.subject.engine} (action {each.id})")
        if each.plan.lever == plan.lever and each.id != plan.amends:
            return refuse("busy", f"action {each.id} holds {plan.lever}")
        if waits:
            return refuse("busy", f"what {each.plan.lever} does is still being measured (action {each.id})")
    return None


def cooldown(question: Question) -> Refusal | None:
    """Not the same lever on the same engine again at once."""
    plan, limit = question.plan, question.policy.actions.cooldown_seconds
    last = max(
        (
            each.at
            for each in question.done
            if each.plan.lever == plan.lever and each.plan.subject.engine == plan.subject.engine
        ),
        default=None,
    )
    if last is None or question.now - last >= limit:
        return None
    passed = human_seconds(max(0.0, question.now - last))
    return refuse("cooldown", f"{plan.lever} was pulled here {passed} ago, {human_seconds(limit)} must pass")


def restarts(question: Question) -> Refusal | None:
    """Restarting again and again mends nothing: a loop ends here, and a person looks."""
    plan, limit = question.plan, question.policy.actions.restarts_per_hour
    if plan.lever != "restart":
        return None
    used = [
        each
        for each in question.done
        if each.plan.lever == plan.lever
        and each.plan.subject.engine == plan.subject.engine
        and each.mode == "enforce"
        and each.phase != "refused"
        and each.at > _counted_since(question.now, question.budget_since)
    ]
    if len(used) < limit:
        return None
    name = plan.subject.engine
    return refuse("budget", f"{name} was restarted {len(used)} times within an hour (actions.restarts_per_hour)")


def budget(question: Question) -> Refusal | None:
    """The hour's actions."""
    if budget_left(question.done, question.policy, question.now, question.budget_since) > 0:
        return None
    return refuse("budget", f"{question.policy.actions.budget_per_hour} actions within an hour did not settle it")


def budget_left(done: Sequence[Action], policy: Policy, now: float, since: float) -> int:
    """Return how many actions are left of this hour's: what was done in earnest, and not refused by the engine.

    A clock that was set back makes nothing forgotten. Weights have a pace of their own.
    """
    begin = _counted_since(now, since)
    used = sum(
        each.mode == "enforce" and each.phase != "refused" and each.at > begin and each.plan.lever != WEIGHT
        for each in done
    )
    return max(0, policy.actions.budget_per_hour - used)


def _counted_since(now: float, since: float) -> float:
    """Return from when on actions count. ``since``: a person has closed the breaker then; by a clock that was ahead
    and was set back, where it is yet to come.
    """
    return max(now - HOUR, since) if since <= now else now - HOUR
