"""Commands are imported when they are asked for, and are all there for who looks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import typer

from agent.cli.app import COMMANDS, app


def test_a_short_command_imports_no_other() -> None:
    code = "import sys; from agent.cli.app import run; assert run(['--version']) == 0; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    places = {place.partition(":")[0] for place in COMMANDS.values()}
    assert not places & set(done.stdout.split())


def test_all_are_there_for_help_and_completion() -> None:
    group: Any = typer.main.get_command(app)
    assert list(COMMANDS) == group.list_commands(None)
    assert len(group.commands) == len(list(group.commands))
    for name, command in group.commands.items():
        assert command.name == name
        assert command.help
    assert "sky" not in group.commands
    assert group.commands["policy"] is group.commands["policy"]
    assert group.get_command(None, "sky") is None
