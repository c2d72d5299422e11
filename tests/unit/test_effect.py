"""What every face says of what came of an action."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from agent.actions.types import Phase, Verified
from agent.faces.actions import Looked, explanation, listing
from agent.faces.effect import came_of
from tests.unit.builders import make_action


@pytest.mark.parametrize(
    ("phase", "verified", "told"),
    [
        ("in_force", "not_yet", "being measured"),
        ("undone", "helped", "helped"),
        ("done", "did_not", "did not help"),
        ("expired", "unknown", "effect not known"),
        ("refused", "unknown", ""),
        ("lost", "not_yet", ""),
    ],
)
def test_whether_it_helped_is_told_of_what_was_in_force(phase: Phase, verified: Verified, told: str) -> None:
    assert came_of(make_action(phase=phase, verified=verified)) == told


def test_of_what_nothing_was_expected_the_list_has_the_reason() -> None:
    action = make_action(phase="undone", verified="unknown", reason="undone by ann")
    ordered = replace(action, plan=replace(action.plan, expected=None))
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(listing(Looked(state=None, actions=[action, ordered])))
    _, first, second = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert first.rstrip().endswith("effect not known")
    assert second.rstrip().endswith("undone by ann")


def test_an_id_is_whole_on_a_narrow_terminal() -> None:
    """It is copied into the next command."""
    action = replace(
        make_action(phase="refused"), id="0198f2c4aa17", reason="bad_argument: " + "blocks must be a number " * 5
    )
    console = Console(file=io.StringIO(), width=60, color_system=None)
    console.print(listing(Looked(state=None, actions=[action])))
    assert "0198f2c4aa17 " in console.file.getvalue()  # type: ignore[attr-defined]


def test_what_a_change_has_changed_is_what_is_undone() -> None:
    action = make_action(phase="done")
    changed = replace(action, plan=replace(action.plan, amends="0198f2c4aa17"))
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(explanation(Looked(state=None, actions=[changed])))
    assert "undo: that of action 0198f2c4aa17\n" in console.file.getvalue().replace(" \n", "\n")  # type: ignore[attr-defined]
