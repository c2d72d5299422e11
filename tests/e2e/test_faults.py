"""What breaks around a real engine that serves: docs/reliability.md has the table of which this is a part.

One engine for all; the last two tests are its end. ``make chaos`` does the first for as long as one likes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agent.errors import KvtideError
from tests.bed import nvml
from tests.bed.agent import AgentProcess
from tests.bed.clock import SetClock
from tests.bed.faults import (
    PATIENCE_SECONDS,
    POLICY,
    WORKER_TITLE,
    FaultNode,
    Played,
    at_rest,
    play,
    raising,
    serve,
)
from tests.bed.greedy import PROMPTS, Tokens, quiet
from tests.bed.nvml import Gpu

pytestmark = pytest.mark.timeout(900)  # for the start of the server on a machine with much else to do

DAY = 86_400
SPOIL_AFTER_SECONDS, CONTROL_SECONDS = 1.0, 6.0


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[FaultNode]:
    found = FaultNode(folder / "faults")
    try:
        found.engine.wait_ready(600.0)
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def expected(node: FaultNode) -> Tokens:
    """What the engine says with nothing broken."""
    tokens = quiet(node.engine.url)
    assert len(set(tokens.values())) == PROMPTS  # else a comparison would say little
    return tokens


def held(node: FaultNode) -> str:
    """Have a lever pulled; return the action's id."""
    action = node.order("watermark", ratio=0.05)
    assert action["phase"] == "in_force", action
    return str(action["id"])


def phase(node: FaultNode, action: str) -> str:
    """Return how an action stands, as the agent tells."""
    found = [each["phase"] for each in node.agent.state()["actions"]["recent"] if each["id"] == action]
    return str(found[0])


def test_no_token_differs_whatever_breaks_and_all_is_well_again(node: FaultNode, expected: Tokens) -> None:
    with node.acting("kept", POLICY):
        played = play(node, expected, 0.0, seed=1)  # each fault once, in the seed's order
        assert (played.differ, played.failed) == ([], [])
        assert played.served > 0
        node.agent.wait(lambda: at_rest(node), PATIENCE_SECONDS)
        assert node.agent.engine()["hooks"]["errors"] == {}


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """A file system of 2 MiB."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> None:
    """Write until there is no room for a byte more."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 512, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


def test_a_full_disk_stops_acting_and_not_observing(node: FaultNode) -> None:
    disk = node.folder / "small"
    # Not mode observe: what is meant to do nothing has no reason to tell why nothing is done.
    with small_disk(disk), node.acting("small", "actions: {mode: dry-run}\n") as agent:
        node.kvtide("undo", held(node))
        fill(disk / "filler")
        with pytest.raises(KvtideError, match=r"full|No space left"):
            node.order("watermark", ratio=0.05)
        agent.wait(lambda: agent.state()["actions"]["problem"], PATIENCE_SECONDS)
        before = agent.engine()["report_sequence"]
        agent.wait(lambda: agent.engine()["report_sequence"] > before, PATIENCE_SECONDS)
        agent.get("/-/ready")
        assert agent.metrics()["kvtide_engine_up"] == 1
        (disk / "filler").unlink()
        agent.wait(lambda: not agent.state()["actions"]["problem"], PATIENCE_SECONDS)
        node.kvtide("undo", held(node))


def test_a_damaged_journal_stops_acting_until_it_is_moved_away(node: FaultNode) -> None:
    journal = node.folder / "damaged" / "actions.db"
    journal.parent.mkdir()
    journal.write_bytes(b"no database at all " * 1000)
    with node.acting("damaged", "actions: {mode: dry-run}\n") as agent:
        agent.wait(lambda: agent.state()["actions"]["problem"], PATIENCE_SECONDS)
        assert "move it away" in agent.state()["actions"]["problem"]
        with pytest.raises(KvtideError, match=r"not a database"):
            node.order("watermark", ratio=0.05)
        before = agent.engine()["report_sequence"]
        agent.wait(lambda: agent.engine()["report_sequence"] > before, PATIENCE_SECONDS)
        assert agent.metrics()["kvtide_engine_up"] == 1
        journal.rename(journal.with_suffix(".damaged"))
        agent.wait(lambda: not agent.state()["actions"]["problem"], PATIENCE_SECONDS)
        node.kvtide("undo", held(node))


def test_a_clock_that_is_set_changes_nothing_that_lasts(
    node: FaultNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SetClock(tmp_path)
    for name, value in clock.environment().items():
        monkeypatch.setenv(name, value)
    with node.acting("clock", POLICY) as agent:
        monkeypatch.undo()
        action, instance = held(node), agent.engine()["instance"]
        for seconds in (DAY, -DAY, 0):
            before = agent.state()["at"]
            clock.step(seconds)
            agent.wait(lambda before=before: abs(agent.state()["at"] - before) > DAY / 2, PATIENCE_SECONDS)
            report = agent.engine()["report_sequence"]
            # More reports than a lease has seconds would be many: some looks, with the lease renewed meanwhile.
            agent.wait(lambda report=report: agent.engine()["report_sequence"] > report + 4, PATIENCE_SECONDS)
            engine = agent.engine()
            assert (engine["phase"], engine["instance"], phase(node, action)) == ("live", instance, "in_force")
            assert [each["action"] for each in engine["in_force"]] == [action]
            assert [each["phase"] for each in agent.verdicts("kv_stall")] == []
        node.kvtide("undo", action)
        agent.wait(lambda: not agent.engine()["in_force"], PATIENCE_SECONDS)


def test_a_driver_that_hangs_and_a_gpu_that_is_lost_cost_nobody_else_anything(
    node: FaultNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, library = tmp_path / "script", nvml.build(tmp_path) / nvml.LIBRARY
    one, other = Gpu("GPU-a"), Gpu("GPU-b")
    healthy = nvml.Script(gpus=(one, other))
    settings = tmp_path / "agent.yaml"
    settings.write_text(f"sources: {{device: {{library: {library}}}}}\n")

    def gpus() -> list[bool]:
        device = agent.state()["device"]
        return [not (gpu["lost"] or gpu["silent"]) for gpu in device["gpus"]] if device else []

    def source() -> dict[str, Any]:
        (found,) = [each for each in agent.state()["sources"] if each["source"] == "device"]
        return dict(found)

    def goes_on() -> None:
        before = agent.engine()["report_sequence"]
        agent.wait(lambda: agent.engine()["report_sequence"] > before + 1, PATIENCE_SECONDS)
        assert agent.engine()["phase"] == "live"
        assert [each["up"] for each in agent.state()["sources"] if each["source"] == "host"] == [True]

    healthy.write(script)
    monkeypatch.setenv(nvml.SCRIPT_VARIABLE, str(script))
    with AgentProcess(node.folder, args=["--config", str(settings)]) as agent:
        agent.wait_live(PATIENCE_SECONDS)
        agent.wait(lambda: gpus() == [True, True], PATIENCE_SECONDS)
        nvml.Script(gpus=(one, Gpu("GPU-b", lost=True))).write(script)
        agent.wait(lambda: gpus() == [True, False], PATIENCE_SECONDS)
        goes_on()
        healthy.write(script)
        agent.wait(lambda: gpus() == [True, True], PATIENCE_SECONDS)
        memory = "nvmlDeviceGetMemoryInfo_v2"
        everything = frozenset({memory, "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetComputeRunningProcesses_v3"})
        nvml.Script(gpus=(one, other), hang=everything).write(script)
        agent.wait(lambda: gpus() == [False, False] or not source()["up"], PATIENCE_SECONDS)
        goes_on()
        healthy.write(script)
        agent.wait(lambda: gpus() == [True, True], PATIENCE_SECONDS)
        nvml.Script(gpus=(one, other), hang=everything).write(script)
        agent.wait(lambda: gpus() == [False, False] or not source()["up"], PATIENCE_SECONDS)
        assert agent.stop() == 0, "what hangs in a driver does not keep the agent from ending in order"


def raised(node: FaultNode) -> int:
    """Return how many different functions of the hooks have raised, in all processes."""
    told = [json.loads(path.read_text()) for path in (node.folder / "raise").glob("raised-*.json")]
    return len({name for each in told for name in each})


def test_hooks_that_raise_at_random_change_no_token(node: FaultNode, expected: Tokens) -> None:
    with node.acting("kept", POLICY) as agent:
        played = raising(node, expected, 8.0, seed=3)
        assert (played.differ, played.failed) == ([], [])
        assert raised(node) > 20, "too few functions were called to tell anything"
        hooks = agent.engine()["hooks"]
        if hooks is not None:  # what tells it may itself be off
            assert hooks["errors"]
            assert hooks["off"]
        said = node.engine.log.read_text(errors="replace")
        assert "the engine goes on" in said
        # Wake-ups come for as long as there is a link; the engine swallows those whose hook is off.
        assert "EngineDeadError" not in said

        # The control: one spoiled block of one running request is noticed.
        spoil = threading.Timer(SPOIL_AFTER_SECONDS, (node.folder / "corrupt" / "corrupt").touch)
        spoil.start()
        control, until = Played(), time.monotonic() + CONTROL_SECONDS
        corrupted = node.folder / "corrupt" / "corrupted.json"
        serve(node, expected, control, lambda: corrupted.exists() and time.monotonic() > until, seed=2)
        spoil.join()
        assert control.differ, "a spoiled block of a running request went unnoticed"


def test_a_worker_that_is_killed_ends_the_engine_and_its_series(node: FaultNode) -> None:
    with AgentProcess(node.folder) as agent:
        agent.wait(lambda: len(agent.engines()) == 1, PATIENCE_SECONDS)
        os.kill(node.titled(WORKER_TITLE), signal.SIGKILL)
        agent.wait(lambda: agent.engines() == [], PATIENCE_SECONDS)
        agent.wait(lambda: agent.metrics().get("kvtide_engine_up", 0) == 0, PATIENCE_SECONDS)
        agent.get("/-/ready")
