"""``--json``: every command that finds something prints it as JSON, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from agent.cli.app import app, run

# What it prints is a file of its own kind, or it goes on until it is stopped.
NOTHING_FOUND = {"agent", "policy schema", "report", "web hash"}
OF_OTHERS = {"actions fleet", "web check"}  # words of the fleet are a file; a web file is right or an error


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name in group.list_commands(None):
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_every_command_has_it() -> None:
    found = dict(commands(typer.main.get_command(app)))
    assert len(found) > 30
    without = {name for name, command in found.items() if "--json" not in [o for p in command.params for o in p.opts]}
    assert {name for name in without if not any(name.startswith(other) for other in OF_OTHERS)} == NOTHING_FOUND


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    assert run([*map(str, arguments), "--json"]) == code
    out = capsys.readouterr()
    assert out.err == ""
    return json.loads(out.out)


def test_policies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("profile: latency\nuse:\n  warn_ratio: 0.5\n")
    assert said(capsys, "policy", "show", "--profile", "textbook")["profile"] == "textbook"
    told = said(capsys, "policy", "check", file)
    assert (told["profile"], told["changed"]["use.warn_ratio"]["value"]) == ("latency", 0.5)
    assert said(capsys, "policy", "explain", "use.warn_ratio", "--policy", file)["value"] == 0.5
    assert "use.warn_ratio" in said(capsys, "policy", "explain")


def test_alerts_and_boards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    written = said(capsys, "alerts", "build", "--out", tmp_path / "rules")["written"]
    assert written
    assert said(capsys, "alerts", "check", tmp_path / "rules")["right"]
    Path(written[0]).write_text("groups: []\n")
    assert not said(capsys, "alerts", "check", tmp_path / "rules", code=1)["right"]
    assert said(capsys, "dashboards", "build", "--out", tmp_path / "boards")["written"]
    assert said(capsys, "dashboards", "check", "--out", tmp_path / "boards") == {
        "where": str(tmp_path / "boards"),
        "right": True,
        "differ": [],
    }
