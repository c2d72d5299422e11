"""What a command says where the control socket can't be used: one line."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli import control
from agent.cli.app import run
from agent.cli.control import ControlClient
from agent.errors import KvtideError


def test_a_path_that_is_too_long_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = tmp_path / ("x" * 120) / "agent.sock"
    assert run(["actions", "off", "--socket", str(long)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "control.sock: the path has " in line
    assert "107 are allowed" in line


def test_nobody_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["actions", "off", "--socket", str(tmp_path / "agent.sock")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "no agent at" in line


@contextlib.contextmanager
def mute(path: Path) -> Iterator[None]:
    """Takes connections and never answers."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(4)
    taken: list[socket.socket] = []
    thread = threading.Thread(target=lambda: taken.append(listener.accept()[0]), daemon=True)
    thread.start()
    try:
        yield
    finally:
        for each in (*taken, listener):
            each.close()


def test_one_that_does_not_answer_may_still_do_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "TIMEOUT_SECONDS", 0.2)
    with mute(tmp_path / "control.sock"), pytest.raises(KvtideError, match="may still be done; see: kvtide actions"):
        ControlClient(tmp_path / "agent.sock").post("/api/v1/off", None, 0.2)
