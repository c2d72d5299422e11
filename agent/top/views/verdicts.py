"""Verdicts: all of them, with their sentences, since when, and what would help."""

from __future__ import annotations

from agent.faces.verdicts import since
from agent.retained import count_of
from agent.state import AgentState, Verdict
from agent.top.history import Who
from agent.top.seen import Page, Room, Seen, Where
from agent.top.text import line, paragraph
from agent.top.verdict_lines import body_of, head_of, verdicts_of

NAME = "verdicts"
ORDERS = ("urgency", "since", "kind", "subject")


def page(state: AgentState, _seen: Seen, where: Where, room: Room) -> Page:
    """Return the verdicts that stand, then those that are over; notes too."""
    found = Page(orders=ORDERS)
    if state.judgement is None:
        found.lines.append(line(("Nothing was judged yet.", "dim")))
        return found
    every = _ordered(verdicts_of(state), where)
    if where.engine is not None:
        every = [each for each in every if each.subject.engine == where.engine.label]
        of_engine = f"Of engine {where.engine.label} alone; escape goes back, 5 shows all."
        found.lines += paragraph(of_engine, room.width, "dim")
    listed = [each for each in every if where.lists(each.kind, str(each.subject), each.sentence, each.phase, each.tier)]
    if not every:
        found.lines.append(line(("Nothing is wrong, and nothing was in the last minutes.", "good")))
    elif not listed:
        found.lines += paragraph(f"No verdict has {where.pattern!r}; escape clears the filter.", room.width)
    else:
        stand = sum(each.phase != "resolved" for each in listed)
        text = f"{count_of(stand, 'verdict')} standing, {len(listed) - stand} over"
        found.lines.append(line((text, "label")))
    for each in listed:
        text = f"{each.kind} {each.subject} {each.sentence}"
        key = f"{each.kind}\n{each.subject}"
        found.pick(head_of(each, state.at, room.width), key, text, _engine_of(state, each), each.subject.tenant or None)
        found.lines += body_of(each, room.width)
    return found


def _ordered(verdicts: list[Verdict], where: Where) -> list[Verdict]:
    order, backwards = where.order(NAME)
    keys = {
        "since": lambda each: -since(each),
        "kind": lambda each: each.kind,
        "subject": lambda each: str(each.subject),
    }
    name = ORDERS[order % len(ORDERS)]
    found = verdicts if name == "urgency" else sorted(verdicts, key=keys[name])
    return found[::-1] if backwards else found


def _engine_of(state: AgentState, verdict: Verdict) -> Who | None:
    label = verdict.subject.engine
    if not label:
        return None
    return Who(label, hooked=any(each.engine == label for each in state.engines))
