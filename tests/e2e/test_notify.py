"""The real agent and a systemd of ours: ready, beating, reloading; and no beat from a main loop that hangs."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.agent import AgentProcess

PATIENCE = 30.0


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

        policy.unlink()
        os.mkfifo(policy)  # who opens it waits for a writer: the main loop hangs, the threads and the process do not
        agent.signal(signal.SIGHUP)
        assert systemd.next("WATCHDOG", "STATUS").startswith("RELOADING=1")
        systemd.heard()
        time.sleep(1.0)  # ten beats
        assert systemd.heard() == []
        assert agent.process.poll() is None

        policy.write_text("profile: default\n")
        assert systemd.next("WATCHDOG", "STATUS") == "READY=1"
        assert systemd.next("STATUS") == "WATCHDOG=1"
        agent.signal(signal.SIGTERM)
        assert systemd.next("WATCHDOG", "STATUS") == "STOPPING=1"
