"""What happened, in its order: verdicts, actions, engines that came and went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agent.faces.effect import came_of
from agent.report.incident import Incident

MOST_EVENTS = 400


class Event(NamedTuple):
    """``at``: Unix seconds. ``weight``: page, warn, note, action, good or harm; a style on the page."""

    at: float
    weight: str
    text: str


def events(incident: Incident) -> list[Event]:
    """Return the first ``MOST_EVENTS`` events."""
    found = [*_verdicts(incident), *_actions(incident)]
    if (harm := incident.first_harm) is not None:
        where = f" on {harm.engine}" if harm.engine else ""
        found.append(Event(harm.at, "harm", f"First harm{where}: {HARM.get(harm.what, harm.what)}"))
    return sorted(found)[:MOST_EVENTS]


HARM = {
    "refused": "a request was refused memory and had to wait",
    "preempted": "a running request was preempted for memory",
    "stalled": "work was there and no token was made",
    "oom": "an allocation failed: out of memory",
    "killed": "the kernel killed a process for want of memory",
}


def _verdicts(incident: Incident) -> Iterator[Event]:
    for life in incident.replay.verdicts:
        about = f"{life.kind} on {life.subject}"
        yield Event(life.suspected_at, "note", f"{about}: suspected")
        yield Event(life.confirmed_at, life.tier, f"{about}: confirmed. {life.first_sentence}")
        if life.resolved_at is not None:
            yield Event(life.resolved_at, "good", f"{about}: resolved{f' ({life.ending})' if life.ending else ''}")


def _actions(incident: Incident) -> Iterator[Event]:
    for action in incident.actions:
        plan = action.plan
        who = "kvtide" if action.by == "agent" else action.by
        what = "would pull" if action.phase == "would" else "pulled" if action.phase != "refused" else "wanted to pull"
        yield Event(action.at, "action", f"{who} {what} {plan.lever} on {plan.subject} for {plan.kind or 'a person'}")
        if action.phase in ("intent", "sent", "would"):
            continue
        came = came_of(action)
        reason = f": {action.reason}" if action.reason else ""
        text = (
            f"{plan.lever} on {plan.subject} is {action.phase.replace('_', ' ')}{f', {came}' if came else ''}{reason}"
        )
        yield Event(action.changed, "action", text)
