"""Actions as text for terminals: the list, one explained, and a block for ``kvtide status``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent.actions.journal_file import Refused, Step
from agent.actions.types import Action, ActionsState
from agent.faces.effect import OFF, VERIFIED, came_of
from agent.faces.lines import BAD
from agent.plain import plain
from agent.state import AgentState
from agent.units import human_seconds

MOST_IN_STATUS = 5
_STYLES = {"in_force": "bold", "failed": BAD, "lost": BAD}


@dataclass(frozen=True, slots=True)
class Looked:
    """What was looked up. ``down``: why no agent answers; ``journal``: why the journal can't be read."""

    state: ActionsState | None
    actions: Sequence[Action]
    steps: Sequence[Step] = ()
    refused: Sequence[Refused] = ()
    down: str = ""
    journal: str = ""

    def as_json(self) -> str:
        """Return all of it as JSON that people can read."""
        told = {
            "agent": self.state is not None,
            "down": self.down,
            "journal": self.journal,
            "mode": self.state.mode if self.state else None,
            "problem": self.state.problem if self.state else "",
            "breaker": self.state.breaker if self.state else None,
            "budget_left": self.state.budget_left if self.state else None,
            "actions": self.actions,
            "steps": self.steps,
            "refused": self.refused,
        }
        return msgspec.json.format(msgspec.json.encode(told), indent=2).decode()


def listing(looked: Looked) -> RenderableType:
    """Return the list, newest first."""
    parts: list[RenderableType] = [*_standing(looked)]
    if looked.actions:
        parts.append(_table(looked.actions))
    else:
        parts.append(Text("Nothing was done."))
    if looked.refused:
        parts += [Text(), Text("Refused, newest first:")]
        for each in looked.refused:
            when = _time(each.at)
            parts.append(
                Text(f"  {when} {each.lever} on {each.engine} for {each.kind}: {each.code}: {plain(each.text)}")
            )
    return Group(*parts)


def explanation(looked: Looked) -> RenderableType:
    """Return one action: why, on what evidence, what was answered, what came of it."""
    action = looked.actions[0]
    plan = action.plan
    lines = [
        f"action {action.id}: {plan.lever} on {plan.subject}, {_words(action.phase)}"
        f"{action.reason and f' ({action.reason})'}",
        f"why: {plan.kind}: {plan.sentence}",
        f"evidence: {_numbers(plan.evidence) or 'none'}",
        f"by: {action.by}, mode {action.mode}, at {_time(action.at)}{f', as rung {plan.rung}' if plan.rung else ''}",
        f"arguments: {_numbers(plan.arguments) or 'none'}",
    ]
    if plan.amends:
        lines.append(f"changes: action {plan.amends}")
    for outcome in action.outcomes:
        detail = f": {outcome.detail}" if outcome.detail else ""
        effect = f" ({_numbers(outcome.effect)})" if outcome.effect else ""
        lines.append(f"answer of {outcome.target[:12]}: {outcome.code}{detail}{effect}")
    lines += [*_expected(action), f"undo: {f'that of action {plan.amends}' if plan.amends else plan.undo}"]
    lines += [f"  {_time(each.at)} {_words(each.phase)}{each.reason and f': {each.reason}'}" for each in looked.steps]
    return Group(*_standing(looked), *(Text(plain(line)) for line in lines))


def block(state: AgentState) -> RenderableType | None:
    """Return what is in force and what stops acting; None where there is nothing to say."""
    actions = state.actions
    if actions is None or (actions.mode == "observe" and not actions.recent and not actions.off):
        return None
    live = [each for each in actions.recent if each.phase == "in_force"]
    head = f"actions: {actions.mode}"
    if actions.budget_left is not None:
        head += f", {actions.budget_left} left this hour"
    parts: list[RenderableType] = [Text(head, style="dim"), *(Text(line, style=BAD) for line in stops(actions))]
    shown = (live + [each for each in actions.recent if each not in live])[:MOST_IN_STATUS]
    if shown:
        parts.append(_table(shown))
    return Group(*parts, Text())


def _standing(looked: Looked) -> Iterator[Text]:
    if looked.down:
        yield Text(f"{plain(looked.down)} This is from the journal alone.", style="yellow")
    if looked.journal:
        yield Text(f"The journal can't be read here: {plain(looked.journal)}", style="yellow")
    if looked.state is not None:
        left = "" if looked.state.budget_left is None else f", {looked.state.budget_left} actions left this hour"
        yield Text(f"mode {looked.state.mode}{left}")
        for line in stops(looked.state):
            yield Text(line, style=BAD)


def stops(actions: ActionsState) -> Iterator[str]:
    """Yield why nothing can be done now; nothing where it can."""
    if actions.problem:
        yield f"Nothing is done: {plain(actions.problem)}"
    elif actions.off:
        yield f"{OFF}: {plain(actions.off)}"
    if actions.breaker.open:
        yield f"The breaker is open: {plain(actions.breaker.reason)}. Close it with: kvtide actions close-breaker"


def _table(actions: Sequence[Action]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("id", "at", "lever", "on", "for", "state", "effect"):
        table.add_column(name, overflow="fold", no_wrap=name == "id")  # the id is copied
    for each in actions:
        phase = Text(_words(each.phase), style=_STYLES.get(each.phase, ""))
        about = f"{each.plan.kind}" if each.by == "agent" else f"{each.by} (a person)"
        row = (each.id, _time(each.at), each.plan.lever, str(each.plan.subject), about)
        table.add_row(*(Text(plain(cell)) for cell in row), phase, Text(plain(came_of(each) or each.reason)))
    return table


def _words(phase: str) -> str:
    return phase.replace("_", " ")


def _expected(action: Action) -> Iterator[str]:
    expected = action.plan.expected
    if expected is None:
        return
    want = f"{expected.signal} {expected.direction} by {expected.amount:.4g} within {human_seconds(expected.seconds)}"
    was = "not known" if action.before is None else f"{action.before:.4g}"
    now = "" if action.after is None else f", then {action.after:.4g}"
    yield f"expected: {want}; it was {was}{now}: {VERIFIED[action.verified]}"


def _numbers(values: object) -> str:
    if not isinstance(values, dict):
        return ""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def _time(unix: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))
