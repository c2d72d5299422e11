"""``kvtide top`` is read quickly as it is mostly called, else by the library that reads all; both read the same."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.cli import app, quick
from agent.cli import top as command
from agent.top import watch
from tests.unit.test_cli import KVTIDE
from tests.unit.top import nodes
from tests.unit.top.test_command import STATE
from tests.unit.top.test_live import Answering

WORDS = st.sampled_from(
    [
        "--url",
        "--url=gpu-7:9477",
        "gpu-7:9477",
        "--view",
        "engine",
        "--view=blocks",
        "--view=sky",
        "--engine",
        "e",
        "--",
        "--engine=",
        "--mono",
        "--mono=1",
        "--once",
        "--json",
        "--speed",
        "2",
        "-x",
        "--help",
        "--vi",
        "--view=Engine",
        "",
    ]
)


def quickly(arguments: Sequence[str]) -> dict[str, Any] | None:
    called: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "watch", lambda **options: called.append(options))
        found = quick.watching(["top", *arguments])
        if found is None:
            return None
        assert found() == 0
    return called[0]


def slowly(arguments: Sequence[str]) -> dict[str, Any] | None:
    called: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "watch", lambda url, **options: called.append({"url": url, **options}))
        code = app.run(["top", *arguments])
    return called[0] if code == 0 and called else None


@pytest.mark.parametrize("environment", [{}, {"KVTIDE_URL": "gpu-1:9477", "NO_COLOR": "1"}, {"KVTIDE_URL": ""}])
@pytest.mark.parametrize("arguments", [(), ("--url", "gpu-7:9477"), ("--view=engine", "--engine", "e", "--mono")])
def test_the_usual_is_read_quickly(
    arguments: tuple[str, ...], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KVTIDE_URL", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = quickly(arguments)
    assert found is not None
    assert {"replay": None, "speed": 1.0, "view": "node", "engine": None} | found == slowly(arguments)


@given(st.lists(WORDS, max_size=4))
@example(["--url", "a", "--url", "b"])
@example(["--view"])
def test_whatever_is_read_quickly_is_read_the_same_slowly(arguments: list[str]) -> None:
    found = quickly(arguments)
    if found is not None:
        assert {"replay": None, "speed": 1.0, "view": "node", "engine": None} | found == slowly(arguments)


@pytest.mark.parametrize("arguments", [[], ["status"], ["--version"], ["topp"]])
def test_other_commands_are_left_alone(arguments: list[str]) -> None:
    assert quick.watching(arguments) is None


def test_nothing_that_reads_command_lines_is_imported() -> None:
    code = "import sys; from agent.cli.quick import watching; assert watching(['top']); import agent.top.app; "
    code += "import agent.cli.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"typer", "pydantic"} & set(done.stdout.split())


class Terminal:
    """``kvtide top`` on a terminal of its own."""

    def __init__(self, *arguments: str, path: str | None = None) -> None:
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            environment = {**os.environ, "TERM": "xterm-256color"}
            if path is not None:
                environment["PYTHONPATH"] = path
            os.execve(KVTIDE, [str(KVTIDE), "top", *arguments], environment)  # noqa: S606 - no shell
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.got = ""

    def until(self, wanted: str) -> None:
        """Read until ``wanted`` was written; fails where the end comes first."""
        while wanted not in self.got:
            assert select.select([self._end], [], [], 60.0)[0], f"{wanted!r} did not come: {self.got[-500:]!r}"
            self.got += os.read(self._end, 65536).decode(errors="replace")

    def press(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def end(self) -> int:
        """Read to the end; return the exit code."""
        try:
            while part := os.read(self._end, 65536):
                self.got += part.decode(errors="replace")
        except OSError:  # that is how the end of a terminal reads
            pass
        os.close(self._end)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_first_screen_then_the_program() -> None:
    server = Answering(STATE)
    try:
        terminal = Terminal("--url", server.url)
        terminal.until(f"Asking {server.url} ...")
        first = terminal.got
        assert first.startswith("\x1b[?1049h")
        assert "kvtide top" in first
        terminal.until("PAGE")  # of the state
        terminal.press("q")
        assert terminal.end() == 0
    finally:
        server.close()
    assert terminal.got.rindex("\x1b[?1049l") > terminal.got.rindex("\x1b[?1049h")


def test_the_terminal_is_given_back_where_the_program_cannot_come(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "textual.py").write_text("raise KeyboardInterrupt")
    terminal = Terminal("--url", nodes.SOURCE, path=str(tmp_path))
    assert terminal.end() == 130
    assert terminal.got.index("\x1b[?1049h") < terminal.got.index("\x1b[?1049l")
    assert terminal.got.endswith("\x1b[?25h")
