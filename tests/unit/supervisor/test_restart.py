"""Restarts of real processes by a real command: drained, watched, never a successor, and a failure is one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.actions.types import Outcome, Plan
from agent.state import AgentState
from agent.subject import Subject
from agent.supervisor.base import Target
from agent.supervisor.command import CommandSupervisor
from agent.supervisor.drained import Drained
from agent.supervisor.restart import Restart
from tests.unit.builders import make_engine, make_state
from tests.unit.support import eventually_async

SERVICE = [sys.executable, "-c", "import time; time.sleep(600)"]
# What a supervisor does: end the process that is meant, start another, and say which one it is.
SUPERVISOR = f"""#!{sys.executable}
import os, pathlib, signal, subprocess, sys
os.kill(int(os.environ["KVTIDE_PID"]), signal.SIGTERM)
if len(sys.argv) > 2:
    sys.exit("it did not come up")
new = subprocess.Popen({SERVICE!r}, start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
pathlib.Path(sys.argv[1]).write_text(str(new.pid))
"""


class Bed:
    """One service with a supervisor, seen as an engine whose instance is its process."""

    def __init__(self, folder: Path) -> None:
        self.pids = folder / "pid"
        self.script = folder / "supervisor"
        self.script.write_text(SUPERVISOR)
        self.script.chmod(0o700)
        self.first = subprocess.Popen(SERVICE, start_new_session=True)
        self.pids.write_text(str(self.first.pid))
        self.running: int | None = 0
        self.drains: list[str] = []
        self.refused = ""
        self.moves = True

    @property
    def pid(self) -> int:
        return int(self.pids.read_text())

    def state(self) -> AgentState:
        alive = self.first.poll() is None if self.pid == self.first.pid else Path(f"/proc/{self.pid}").exists()
        engine = make_engine(
            instance=f"i{self.pid}", pid=self.pid, phase="live" if alive else "lost", running=self.running
        )
        return make_state(engines=(engine,))

    def drain(self, engine: str, why: str) -> bool:
        self.drains.append(f"drain {engine}")
        return self.moves

    def undrain(self, engine: str) -> None:
        self.drains.append(f"undrain {engine}")

    def drain_refused(self, engine: str) -> str:
        return self.refused

    def lever(self, *more: str, drain: float = 10.0, start: float = 20.0) -> Restart:
        supervisor = CommandSupervisor([str(self.script), str(self.pids), *more], 20.0)
        return Restart({"m": supervisor}, self.drained(drain), start_seconds=start)

    def drained(self, seconds: float = 10.0) -> Drained:
        return Drained(self, self.state, drain_seconds=seconds, settle_seconds=0.0)

    def plan(self) -> Plan:
        return Plan(
            lever="restart",
            subject=Subject(scope="engine", engine="m"),
            targets=(f"i{self.pid}",),
            arguments={},
            kind="kv_stall",
            sentence="",
            evidence={},
            expected=None,
            undo="",
            lease_seconds=30.0,
            state_at=0.0,
            monotonic=0.0,
        )

    def starts_another(self) -> subprocess.Popen[bytes]:
        """Somebody else has started a successor."""
        new = subprocess.Popen(SERVICE, start_new_session=True)
        self.pids.write_text(str(new.pid))
        return new

    def close(self) -> None:
        if self.pid != self.first.pid:
            os.kill(self.pid, signal.SIGKILL)
        self.first.kill()
        self.first.wait()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    found = Bed(tmp_path)
    yield found
    found.close()


def allowed() -> str:
    """Nobody forbids it."""
    return ""


async def test_it_is_drained_restarted_and_seen_to_serve(bed: Bed) -> None:
    bed.running = 3
    before, plan = bed.pid, bed.plan()
    work = asyncio.create_task(bed.lever().apply(plan, allowed))
    await asyncio.sleep(0.6)
    assert (bed.drains, bed.pid) == (["drain m"], before), "requests run"
    bed.running = 0
    done = await work
    assert (done.code, done.detail, done.effect["requests"]) == ("done", "by command, drained", 0)
    assert bed.pid != before
    assert bed.first.wait(60.0) == -signal.SIGTERM
    assert bed.drains == ["drain m", "undrain m"]


async def test_requests_are_waited_for_no_longer_than_the_bound(bed: Bed) -> None:
    bed.running, bed.moves = 3, False
    done = await bed.lever(drain=0.3).apply(bed.plan(), allowed)
    assert (done.code, done.effect["requests"]) == ("done", 3)
    assert done.detail == "by command, its weight is not moved (balancer.mode), with 3 running after 0.3 s"


async def test_a_successor_is_never_restarted(bed: Bed) -> None:
    plan, lever = bed.plan(), bed.lever()
    assert (await lever.apply(plan, allowed)).code == "done"
    successor = bed.pid
    again: Outcome = await lever.apply(plan, allowed)
    assert (again.code, bed.pid) == ("conflict", successor)
    assert "a successor is not restarted" in again.detail


async def test_one_that_ends_while_it_is_drained_is_left_to_who_starts_it(bed: Bed) -> None:
    bed.running = 3
    work = asyncio.create_task(bed.lever().apply(bed.plan(), allowed))
    await asyncio.sleep(0.4)
    other = bed.starts_another()
    bed.running = 0
    assert (await work).code == "conflict"
    assert other.poll() is None
    other.kill()
    other.wait()
    bed.pids.write_text(str(bed.first.pid))


async def test_what_does_not_come_up_has_failed(bed: Bed) -> None:
    failed = await bed.lever("fail").apply(bed.plan(), allowed)
    assert failed.code == "failed"
    assert failed.detail.endswith("ended with 1: it did not come up")
    assert bed.drains[-1] == "undrain m"


async def test_a_successor_that_does_not_serve_in_time_is_a_failure(bed: Bed, tmp_path: Path) -> None:
    quiet = tmp_path / "quiet"
    quiet.write_text("#!/bin/sh\nexit 0\n")
    quiet.chmod(0o700)
    lever = Restart({"m": CommandSupervisor([str(quiet)], 20.0)}, bed.drained(1.0), start_seconds=0.5)
    failed = await lever.apply(bed.plan(), allowed)
    assert (failed.code, failed.detail) == ("failed", "no successor serves 0.5 s after the restart")


async def test_the_fleet_may_say_no(bed: Bed) -> None:
    bed.refused = "3 of 10 are below 50 % already"
    refused = await bed.lever().apply(bed.plan(), allowed)
    assert (refused.code, bed.first.poll()) == ("conflict", None)
    assert "3 of 10" in refused.detail
    assert bed.drains == ["drain m", "undrain m"]


async def test_a_try_changes_nothing(bed: Bed) -> None:
    would = await bed.lever().would(bed.plan())
    assert (would.code, would.detail) == ("would", "by command, with 0 running")
    assert (bed.drains, bed.first.poll()) == ([], None)
    bed.script.chmod(0o600)
    os.rename(bed.script, f"{bed.script}.away")
    assert (await bed.lever().would(bed.plan())).code == "unsupported"


def test_without_a_supervisor_it_says_so(bed: Bed) -> None:
    assert bed.lever().why_not("m") == ""
    assert bed.lever().why_not("other") == "nobody is named who restarts other (supervisor.engines)"


async def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = tmp_path / "hangs"
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/child\nwait\n")
    script.chmod(0o700)
    target = Target(engine="m", instance="i", host="h", pid=0, started_at=0.0)
    with pytest.raises(Exception, match=r"has not ended within 1 s"):
        await CommandSupervisor([str(script)], 1.0).restart(target)
    child = int((tmp_path / "child").read_text())
    for _ in range(500):
        if not _runs(child):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("its child goes on")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_what_a_person_forbids_while_it_is_drained_is_not_restarted(bed: Bed) -> None:
    bed.running, no = 3, ""
    work = asyncio.create_task(bed.lever().apply(bed.plan(), lambda: no))
    await eventually_async(lambda: bed.drains)
    no = "switched off by ann"
    done = await work
    assert (done.code, done.detail) == ("conflict", "switched off by ann")
    assert bed.first.poll() is None
    assert bed.drains == ["drain m", "undrain m"]
