"""Actions: what the agent does about verdicts, what stops it, and what it has refused to do."""

from __future__ import annotations

from agent.actions.types import Action
from agent.retained import count_of
from agent.state import AgentState
from agent.top.action_lines import COLUMNS, explained, row_of, standing_of
from agent.top.history import Who
from agent.top.seen import Page, Room, Seen, Where
from agent.top.text import line, paragraph, table

NAME = "actions"
ORDERS = ("newest", "lever", "on", "state")


def page(state: AgentState, _seen: Seen, where: Where, room: Room) -> Page:
    """Return what was done; the action that was opened is explained below its row."""
    found = Page(orders=ORDERS)
    if state.actions is None:
        found.lines.append(line(("- this agent takes no actions.", "dim")))
        return found
    found.lines += standing_of(state.actions, room.width)
    recent = _ordered(list(state.actions.recent), where)
    listed = [
        each for each in recent if where.lists(each.plan.lever, str(each.plan.subject), each.plan.kind, each.phase)
    ]
    if not recent:
        found.lines.append(line(("Nothing was done.", "dim")))
    elif not listed:
        found.lines += paragraph(f"No action has {where.pattern!r}; escape clears the filter.", room.width)
    else:
        head, lines = table(COLUMNS, [row_of(each) for each in listed], room.width - 1)
        found.lines.append(((" ", ""), *head))
        for each, row in zip(listed, lines, strict=True):
            subject = each.plan.subject
            who = Who(subject.engine, hooked=True) if subject.engine else None
            text = f"{each.id} {each.plan.lever} {subject} {each.plan.kind}"
            found.pick(((" ", ""), *row), each.id, text, who, subject.tenant or None)
            if each.id == where.opened:
                found.lines += explained(each, room.width)
    if state.actions.refused:
        found.lines.append(())
        told = ", ".join(f"{each.lever} {count_of(each.count, 'time')} ({each.code})" for each in state.actions.refused)
        found.lines += paragraph(f"Not done since the agent started: {told}", room.width, "dim")
    return found


def _ordered(actions: list[Action], where: Where) -> list[Action]:
    order, backwards = where.order(NAME)
    keys = {
        "newest": lambda each: -each.at,
        "lever": lambda each: each.plan.lever,
        "on": lambda each: str(each.plan.subject),
        "state": lambda each: each.phase,
    }
    found = sorted(actions, key=lambda each: -each.at)
    found.sort(key=keys[ORDERS[order % len(ORDERS)]])
    return found[::-1] if backwards else found
