"""Each condition has a page for the person who is paged, with commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from agent.cli.app import app
from agent.policy.types import DEFAULT, TEXTBOOK
from alerts import conditions, textbook
from alerts.rule import Alert

BOOKS = Path(__file__).parents[3] / "docs" / "runbooks"
HEADINGS = [
    "What it means",
    "Is it real",
    "First three commands",
    "What kvtide has done already",
    "How to stop it",
]
NEEDED = {
    rule.runbook or rule.condition
    for group in (*conditions.groups(DEFAULT), *textbook.groups(TEXTBOOK))
    for rule in group.rules
    if isinstance(rule, Alert)
}


def test_there_is_a_page_for_each_condition_and_no_other() -> None:
    assert {page.stem for page in BOOKS.glob("*.md")} == NEEDED


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_page_tells_what_to_do(name: str) -> None:
    text = (BOOKS / f"{name}.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(part.strip() for part in parts)
    assert len(re.findall(r"^\d\. `", parts[2], re.MULTILINE)) == 3, "three commands"


def test_the_commands_of_kvtide_exist() -> None:
    whole = get_command(app)
    for page in BOOKS.glob("*.md"):
        for words in re.findall(r"`kvtide ([a-z][^`]*)`", page.read_text()):
            command, *rest = words.split()
            found = whole.commands.get(command)  # type: ignore[attr-defined]
            assert found is not None, f"{page.name}: kvtide {command}"
            if hasattr(found, "commands"):
                assert rest, page.name
                assert rest[0] in found.commands, f"{page.name}: kvtide {command} {rest[0]}"
