"""What the agent does, as lines: what stops it, and its actions, newest first."""

from __future__ import annotations

from collections.abc import Iterator

from agent.actions.types import Action, ActionsState
from agent.faces.effect import OFF, VERIFIED, came_of
from agent.top.text import Cell, Column, Line, line, paragraph, table
from agent.top.verdict_lines import clock
from agent.units import human_seconds

_STYLES = {"in_force": "bold", "failed": "bad", "lost": "bad", "refused": "yellow"}
COLUMNS = (
    Column("at", 8),
    Column("lever", 8, 1),
    Column("on", 4, 1),
    Column("for", 6, 1),
    Column("state", 8),
    Column("effect", 8, 1),
)


def standing_of(actions: ActionsState, cells: int) -> list[Line]:
    """Return the mode, and what keeps the agent from acting."""
    words = {"observe": "observe: nothing is done", "dry-run": "dry-run: each is asked what it would do"}
    text = f"mode {words.get(actions.mode, actions.mode)}"
    if actions.budget_left is not None:
        text += f", {actions.budget_left} actions left this hour"
    found = paragraph(text, cells)
    if actions.problem:
        found += paragraph(f"Nothing is done: {actions.problem}", cells, "bad")
    elif actions.off:
        found += paragraph(f"{OFF}: {actions.off}", cells, "bad")
    if actions.breaker.open:
        why = f"The breaker is open: {actions.breaker.reason}. Close it with: kvtide actions close-breaker"
        found += paragraph(why, cells, "bad")
    return found


def feed_of(actions: ActionsState, cells: int, most: int) -> list[Line]:
    """Return what was done last, what is in force before all else."""
    live = [each for each in actions.recent if each.phase == "in_force"]
    shown = (live + [each for each in actions.recent if each not in live])[:most]
    if not shown:
        return [line(("Nothing was done.", "dim"))]
    head, lines = table(COLUMNS, [row_of(each) for each in shown], cells)
    return [head, *lines]


def row_of(action: Action) -> list[Cell]:
    """Return an action's cells under :data:`COLUMNS`."""
    phase = action.phase.replace("_", " ")
    who = action.plan.kind if action.by == "agent" else f"{action.by} (a person)"
    effect = "; ".join(filter(None, (came_of(action), action.reason)))
    return [
        clock(action.at),
        action.plan.lever,
        str(action.plan.subject),
        who,
        (phase, _STYLES.get(action.phase, "")),
        effect or "-",
    ]


def explained(action: Action, cells: int) -> list[Line]:
    """Return one action: why, on what evidence, what was expected, what was answered, how it is undone."""
    return [each for text in _sentences(action) for each in paragraph(text, cells, "", 4)]


def _sentences(action: Action) -> Iterator[str]:
    plan = action.plan
    yield f"action {action.id}, mode {action.mode}, by {action.by}{f', rung {plan.rung}' if plan.rung else ''}"
    yield f"why: {plan.kind}: {plan.sentence}"
    for name, pairs in (("evidence", plan.evidence), ("arguments", plan.arguments)):
        told = ", ".join(
            f"{key} {each:.4g}" if isinstance(each, float) else f"{key} {each}" for key, each in pairs.items()
        )
        yield f"{name}: {told or 'none'}"
    if (want := plan.expected) is not None:
        was = "not known" if action.before is None else f"{action.before:.4g}"
        now = "" if action.after is None else f", then {action.after:.4g}"
        yield (
            f"expected: {want.signal} {want.direction} by {want.amount:.4g} within {human_seconds(want.seconds)}; "
            f"it was {was}{now}: {VERIFIED[action.verified]}"
        )
    for outcome in action.outcomes:
        yield f"answer of {outcome.target[:12]}: {outcome.code}{f': {outcome.detail}' if outcome.detail else ''}"
    yield f"undo: {plan.undo}; kvtide actions undo {action.id}"
