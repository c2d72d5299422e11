"""The whole agent in a process of its own, with its commands: from a leak to the lever, over a kill -9, and off."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bed.agent import KVTIDE, AgentProcess
from tests.unit.actions.test_killed import Engine
from tests.unit.builders import make_pool_report
from tests.unit.details import make_detail, make_leak
from tests.unit.support import eventually

PATIENCE = 120.0


class Leaking(Engine):
    """Leaks until its lever is pulled."""

    def pool(self) -> Any:
        leaked = 0 if self.levers["reclaim_orphans"].calls["apply"] else 40
        leaks = (make_leak(blocks=leaked, age_seconds=30.0),) if leaked else ()
        self.link.send(make_detail(monotonic=time.monotonic(), leaks=leaks))
        return make_pool_report(held=400, orphaned=leaked)


class Node:
    """An agent that acts, and its engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.policy = folder / "policy.yaml"
        self.policy.write_text("actions: {mode: enforce, breaches: 2, calm_seconds: 600}\n")
        self.agent = self.start()
        self.engine = Leaking(self.agent.socket, self.agent.socket.with_name("agent.key"))
        self.engine.start()

    def start(self) -> AgentProcess:
        return AgentProcess(self.folder, args=["--policy", str(self.policy)])

    def kvtide(self, *arguments: str, code: int = 0) -> str:
        environment = {"KVTIDE_SOCKET": str(self.agent.socket), "KVTIDE_STATE_DIRECTORY": str(self.agent.kept)}
        done = subprocess.run(
            [str(KVTIDE), "actions", *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def newest(self) -> dict[str, Any]:
        """The newest action, those in force first."""
        recent: list[dict[str, Any]] = self.agent.state()["actions"]["recent"]
        return recent[0] if recent else {}

    def listed(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kvtide("list", "--json"))
        return found

    def close(self) -> None:
        self.engine.close()
        self.agent.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    yield found
    found.close()


def test_from_a_leak_to_the_lever_over_a_kill_and_off(node: Node) -> None:
    reclaim, watermark = node.engine.levers["reclaim_orphans"], node.engine.levers["watermark"]
    node.agent.wait(lambda: reclaim.calls["apply"] == 1, PATIENCE)
    node.agent.wait(lambda: node.newest().get("verified") == "helped", PATIENCE)
    (action,) = node.listed()["actions"]
    assert (action["plan"]["lever"], action["phase"], action["before"], action["after"]) == (
        "reclaim_orphans",
        "done",
        40.0,
        0.0,
    )
    told = node.kvtide("explain", action["id"])
    assert "40 KV blocks are held by no request" in told
    assert "helped" in told

    ordered = json.loads(node.kvtide("order", "watermark", "m", "blocks=70", "--why", "a test", "--json"))
    assert (ordered["phase"], ordered["by"]) == ("in_force", pwd.getpwuid(os.geteuid()).pw_name)
    assert watermark.value == 70
    assert node.agent.metrics()["kvtide_action_in_force"] == 1
    assert "not in force" in node.kvtide("undo", action["id"], code=1)
    assert "must be one of" in node.kvtide("order", "watermarks", "m", "blocks=70", code=2)
    assert "no such engine" in node.kvtide("order", "watermark", "n", "blocks=70", code=1)

    node.agent.kill()
    from_the_journal = node.listed()
    assert not from_the_journal["agent"]
    assert {each["id"] for each in from_the_journal["actions"]} == {action["id"], ordered["id"]}
    assert "no agent at" in node.kvtide("off", code=1)

    node.agent = node.start()
    node.agent.wait(lambda: "handed over" in node.newest().get("reason", ""), PATIENCE)
    assert (watermark.value, watermark.calls["apply"], watermark.calls["undo"]) == (70, 1, 0)
    node.kvtide("off", "enough")
    node.agent.wait(lambda: watermark.value == 0, PATIENCE)
    assert "enough" in node.agent.state()["actions"]["problem"]


def test_the_policy_is_loaded_again_or_stays(node: Node) -> None:
    node.policy.write_text("actions: {mode: bogus}\n")
    node.agent.signal(signal.SIGHUP)
    node.agent.wait(lambda: node.agent.metrics()["kvtide_policy_loaded"] == 0, PATIENCE)
    state = node.agent.state()
    assert "actions.mode: 'bogus'" in state["policy"]["problem"]
    assert state["actions"]["mode"] == "enforce"
    node.policy.write_text("actions: {mode: observe}\n")
    node.agent.signal(signal.SIGHUP)
    node.agent.wait(lambda: node.agent.metrics()["kvtide_policy_loaded"] == 1, PATIENCE)
    eventually(lambda: node.agent.state()["actions"]["mode"] == "observe")
    control = node.agent.socket.with_name("control.sock")
    assert control.stat().st_mode & 0o777 == 0o660
