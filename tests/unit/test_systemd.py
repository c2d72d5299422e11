"""What the agent tells systemd, and what its unit and installer are."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from agent.faces.status_line import status_line
from agent.notify import BEATS, Notifier
from tests.unit.builders import make_state

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "kvtide.service"
MOST_EXPOSURE = 20  # tenths


class Systemd:
    """Listens where NOTIFY_SOCKET says."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0", 1) if address[0] == "@" else address)
        self.socket.setblocking(False)
        self.address = address

    def heard(self) -> list[str]:
        lines: list[str] = []
        while True:
            try:
                lines += self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return lines


@pytest.mark.parametrize("abstract", [False, True])
def test_what_is_said_in_a_life(tmp_path: Path, abstract: bool) -> None:
    systemd = Systemd(f"@kvtide-test-{os.getpid()}" if abstract else str(tmp_path / "notify"))
    environment = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "8000000", "WATCHDOG_PID": str(os.getpid())}
    now = [100.0]
    notifier = Notifier(environment, lambda: now[0])
    assert environment == {}, "children do not inherit it"
    notifier.ready()
    notifier.turned("engines:\n2 live")
    assert systemd.heard() == ["READY=1", "STATUS=engines: 2 live", "WATCHDOG=1"]
    for _ in range(100):
        notifier.turned("engines:\n2 live")
    assert systemd.heard() == []
    now[0] += 8.0 / BEATS
    notifier.turned("engines: none")
    assert systemd.heard() == ["STATUS=engines: none", "WATCHDOG=1"]
    notifier.reloading()
    notifier.ready()
    notifier.stopping()
    first, second, *rest = systemd.heard()
    assert (first, rest) == ("RELOADING=1", ["READY=1", "STOPPING=1"])
    assert second.removeprefix("MONOTONIC_USEC=").isdecimal()
    systemd.socket.close()
    notifier.ready()  # systemd is gone: nothing happens


@pytest.mark.parametrize(
    "environment",
    [{"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "8000000", "WATCHDOG_PID": "1"}, {}],
)
def test_no_beat_where_none_is_asked_of_this_process(tmp_path: Path, environment: dict[str, str]) -> None:
    systemd = Systemd(str(tmp_path / "notify"))
    Notifier({"NOTIFY_SOCKET": systemd.address, **environment}).turned("")
    assert systemd.heard() == []
    Notifier(dict(environment)).turned("nobody hears it")


def test_the_status_line_has_numbers_and_no_names() -> None:
    state = make_state()
    assert status_line(state, state.judgement) == "engines: 1 live, 1 silent; 2 verdicts to page"
    assert status_line(make_state(engines=()), None) == "engines: none; nothing is wrong"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_the_unit_is_well_sandboxed_and_right() -> None:
    options = ["--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSURE}"]
    command = ["systemd-analyze", "security", *options]
    judged = subprocess.run([*command, UNIT], check=False, capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout.splitlines()[-1] + judged.stderr
    verified = subprocess.run(["systemd-analyze", "verify", UNIT], check=False, capture_output=True, text=True)
    complaints = [line for line in verified.stderr.splitlines() if "kvtide" in line and "not executable" not in line]
    assert complaints == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_the_threshold_can_fail(tmp_path: Path) -> None:
    loose = tmp_path / "kvtide.service"
    loose.write_text(UNIT.read_text().replace("ProtectSystem=strict\n", "").replace("NoNewPrivileges=yes\n", ""))
    options = ["--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSURE}"]
    judged = subprocess.run(["systemd-analyze", "security", *options, loose], check=False, capture_output=True)
    assert judged.returncode != 0


def installed(destination: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "DESTDIR": str(destination)}
    command = [str(DEPLOY / "install.sh"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


def test_the_installer_says_how_it_is_used(tmp_path: Path) -> None:
    used = installed(tmp_path)
    assert used.returncode == 2
    assert "deploy/install.sh install | uninstall | purge" in used.stderr


def test_uninstalling_keeps_what_is_a_persons(tmp_path: Path) -> None:
    own = ("opt/kvtide/bin/kvtide", "opt/kvtide/pyvenv.cfg")
    for name in (*own, "etc/kvtide/agent.yaml", "var/lib/kvtide/journal", "opt/other/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert installed(tmp_path, "uninstall").returncode == 0
    assert (tmp_path / "etc/kvtide/agent.yaml").exists()
    assert (tmp_path / "var/lib/kvtide/journal").exists()
    assert not (tmp_path / "opt/kvtide").exists()
    assert installed(tmp_path, "purge").returncode == 0
    assert not (tmp_path / "etc/kvtide").exists()
    assert not (tmp_path / "var/lib/kvtide").exists()
    assert (tmp_path / "opt/other/x").exists()


@pytest.mark.parametrize("wrong", [{"PREFIX": "opt/kvtide"}, {"DESTDIR": "stage"}])
def test_folders_that_depend_on_where_one_stands_are_refused(tmp_path: Path, wrong: dict[str, str]) -> None:
    """The unit and the link on the path would name a program that is not there."""
    environment = {"PATH": os.environ["PATH"], "DESTDIR": str(tmp_path)} | wrong
    command = [str(DEPLOY / "install.sh"), "install"]
    told = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path)
    (folder,) = wrong.values()
    assert (told.returncode, told.stderr) == (2, f"{folder}: PREFIX and DESTDIR must be absolute paths\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("action", ["install", "uninstall", "purge"])
@pytest.mark.parametrize(
    ("prefix", "there"),
    [
        ("/usr/local", ("bin/kvtide", "bin/other")),
        ("/", ("usr/bin/sh",)),
        ("/srv/vllm/", ("pyvenv.cfg", "bin/kvtide", "bin/vllm")),
        ("/srv/other", ("pyvenv.cfg", "bin/python")),
    ],
)
def test_a_folder_of_others_is_never_replaced_nor_removed(
    tmp_path: Path, action: str, prefix: str, there: tuple[str, ...]
) -> None:
    files = [tmp_path / prefix.strip("/") / name for name in there]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    environment = {"PATH": os.environ["PATH"], "DESTDIR": str(tmp_path), "PREFIX": prefix, "WHEELS": str(tmp_path)}
    command = [str(DEPLOY / "install.sh"), action]
    told = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert told.returncode == 2
    assert "is not an environment of the agent's alone: give PREFIX a folder of its own" in told.stderr
    assert all(file.exists() for file in files)
