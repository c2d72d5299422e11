"""Whether anything may be done on this engine now."""

from __future__ import annotations

from agent.actions.gates.question import Question, refuse
from agent.actions.types import Refusal
from agent.policy.actions import OPT_IN, SILENT_RUNG, inside
from agent.units import human_seconds
from agent.waiting import PAUSED

ORDERED_ONLY = frozenset({"sleep"})


def mode(question: Question) -> Refusal | None:
    """The mode of the lever on this engine, and its opt-in."""
    plan, limits = question.plan, question.policy.actions
    if question.mode == "observe":
        return refuse("observe", f"actions.mode of {plan.lever} on {plan.subject.engine} is observe")
    for name in (plan.lever, plan.rung):
        if name in OPT_IN and name not in limits.opt_in:
            return refuse("observe", f"{name} needs a word of its own: actions.opt_in")
    return None


def opt_in(question: Question) -> Refusal | None:
    """What nothing but a person asks for needs its opt-in from them, too."""
    plan = question.plan
    if plan.lever in ORDERED_ONLY & OPT_IN and plan.lever not in question.policy.actions.opt_in:
        return refuse("observe", f"{plan.lever} needs a word of its own: actions.opt_in")
    return None


def off(question: Question) -> Refusal | None:
    """The off switches."""
    return refuse("switched_off", question.off) if question.off else None


def journal(question: Question) -> Refusal | None:
    """No act without its intent on the disk."""
    return refuse("journal", question.journal) if question.journal else None


def breaker(question: Question) -> Refusal | None:
    """Open until a person closes it."""
    if not question.breaker.open:
        return None
    return refuse("breaker", f"open until a person closes it: {question.breaker.reason}")


def stale(question: Question) -> Refusal | None:
    """Nothing is done on numbers that are old."""
    limit, engine = question.policy.actions.stale_seconds, question.engine
    age = question.monotonic - question.state.monotonic
    if age > limit:
        return refuse("stale", f"the agent's own picture is {human_seconds(age)} old")
    if engine is not None and engine.phase == "silent" and question.plan.rung == SILENT_RUNG:
        return None  # that it says nothing is what is known, and that is of now
    if engine is None or engine.phase != "live":
        return refuse("stale", f"engine {question.plan.subject.engine} says nothing")
    reported = engine.report_age_seconds
    if reported is None or reported + age > limit:
        since = "never" if reported is None else f"{human_seconds(reported + age)} ago"
        return refuse("stale", f"engine {engine.engine} has reported {since}, {human_seconds(limit)} are allowed")
    return None


def windows(question: Question) -> Refusal | None:
    """Maintenance, and off-peak times for heavy levers."""
    limits = question.policy.actions
    if inside(limits.maintenance, question.minute):
        return refuse("window", "inside a maintenance (actions.maintenance)")
    heavy = question.plan.lever in limits.heavy and limits.off_peak
    if heavy and not inside(limits.off_peak, question.minute):
        return refuse("window", f"{question.plan.lever} waits for off-peak times (actions.off_peak)")
    return None


def yields(question: Question) -> Refusal | None:
    """Whoever drains or rolls out is not disturbed."""
    engine = question.plan.subject.engine
    why = question.yields.get(engine) or question.yields.get("")
    if why:
        return refuse("yield", why)
    weights = question.state.balancer.engines if question.state.balancer is not None else ()
    if any(each.engine == engine and each.told.step == "person" and not each.told.serves for each in weights):
        return refuse("yield", f"engine {engine} is held back at the load balancer by a person")
    waiting = question.engine.detail.waiting if question.engine and question.engine.detail else None
    if waiting is not None and waiting.stalled_by == PAUSED:
        return refuse("yield", f"engine {engine} was paused by somebody")
    return None


def fleet(question: Question) -> Refusal | None:
    """The same verdict on too many nodes: something else is wrong."""
    limits, kind = question.policy.actions, question.plan.kind
    if question.fleet is None:
        return refuse("fleet", f"{limits.fleet_file}: no fresh word of the fleet") if limits.fleet_file else None
    share = question.fleet.get(kind, 0.0)
    if share <= limits.fleet_share:
        return None
    return refuse("fleet", f"{kind} stands on {share:.0%} of all nodes: something else is wrong; a person must look")
