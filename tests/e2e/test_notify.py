"""The real agent and a systemd of ours: ready, beating, reloading; and no beat from a main loop that hangs."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bed.agent import AgentProcess

PATIENCE = 120.0
PTRACE_ATTACH, PTRACE_DETACH = 16, 17


class Systemd:
    """What is said at NOTIFY_SOCKET."""

    def __init__(self, folder: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.path = folder / "notify"
        self.socket.bind(str(self.path))
        self.socket.settimeout(PATIENCE)

    def next(self, *but: str) -> str:
        """Return the next line that begins with none of ``but``."""
        while True:
            line = self.socket.recv(4096).decode().splitlines()[0]
            if not line.startswith(but):
                return line

    def heard(self) -> list[str]:
        """Return what is there now."""
        self.socket.setblocking(False)
        lines = []
        try:
            while True:
                lines.append(self.socket.recv(4096).decode())
        except BlockingIOError:
            return lines
        finally:
            self.socket.settimeout(PATIENCE)


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    found = Systemd(tmp_path)
    yield found
    found.socket.close()


@contextmanager
def main_loop_held(pid: int) -> Iterator[None]:
    """Stop the main thread of a child, and no other thread of it, as a debugger does."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, None, None):
        pytest.skip(f"no thread can be stopped here: {os.strerror(ctypes.get_errno())}")
    try:
        os.waitpid(pid, 0)  # that it has stopped: else the next to ask how the process is would be told that
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, pid, None, None)


def test_a_life_is_told_and_a_loop_that_hangs_beats_no_more(tmp_path: Path, systemd: Systemd) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("profile: default\n")
    told = {"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "400000"}
    with AgentProcess(tmp_path / "agent", args=["--policy", str(policy)], env=told) as agent:
        assert systemd.next("WATCHDOG", "STATUS") == "READY=1"
        assert systemd.next("STATUS") == "WATCHDOG=1"
        agent.signal(signal.SIGHUP)
        assert systemd.next("WATCHDOG", "STATUS").startswith("RELOADING=1")
        assert systemd.next("WATCHDOG", "STATUS") == "READY=1"

        with main_loop_held(agent.process.pid):  # the other threads go on
            systemd.heard()
            time.sleep(1.0)  # ten beats
            assert systemd.heard() == []
            assert agent.process.poll() is None
        assert systemd.next("STATUS") == "WATCHDOG=1"
        agent.signal(signal.SIGTERM)
        assert systemd.next("WATCHDOG", "STATUS") == "STOPPING=1"
