"""A node without a cluster: the rendered settings, users, capabilities and mounts, with the real agent and hooks.

What kubelet and runtime do is done by the kernel's namespaces; networks and cgroups are the host's.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bed import net
from tests.bed.agent import KVTIDE
from tests.bed.container import USUAL, Container, Mount, command, unavailable
from tests.bed.helm import one
from tests.unit.kubernetes.conftest import objects_of
from tests.unit.support import eventually

AGENT = 65532
PYTHON = KVTIDE.with_name("python")
CONFIG = "/run/kvtide-config"
Engine = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def _containers() -> None:
    if why := unavailable():
        pytest.skip(why)


def pod() -> dict[str, Any]:
    found: dict[str, Any] = one(objects_of("default"), "DaemonSet", "kvtide")["spec"]["template"]["spec"]
    return found


class Node:
    """Folders of a node, and the agent's pod on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket, self.state = folder / "socket", folder / "state"
        for each in (self.socket, self.state):
            each.mkdir(mode=0o755)  # as the kubelet does: root's

    def prepare(self, *, capabilities: str = "chown") -> subprocess.CompletedProcess[str]:
        """Run the init container's script."""
        (init,) = pod()["initContainers"]
        mounts = (Mount(self.socket, "/node/socket"), Mount(self.state, "/node/state"))
        line = command(mounts, init["command"], uid=0, gid=0, bounding=capabilities)
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)

    def agent(self) -> Container:
        """Start the agent's container."""
        settings = yaml.safe_load(one(objects_of("default"), "ConfigMap", "kvtide")["data"]["agent.yaml"])
        settings["http"]["listen"] = "127.0.0.1:0"  # the network is this machine's: no fixed port, loopback alone
        settings["recorder"]["directory"] = "/run/kvtide-state"
        config = self.folder / "config"
        config.mkdir()
        (config / "agent.yaml").write_text(yaml.safe_dump(settings))
        control = self.folder / "control"
        control.mkdir()
        control.chmod(0o777)  # an emptyDir
        mounts = (
            Mount(self.socket, "/run/kvtide"),
            Mount(self.state, "/run/kvtide-state"),
            Mount(control, "/run/kvtide-control"),
            Mount(config, CONFIG, read_only=True),
        )
        line = command(mounts, [str(KVTIDE), "agent", "--config", f"{CONFIG}/agent.yaml"], uid=AGENT, gid=AGENT)
        env = {"KVTIDE_CONTROL": "/run/kvtide-control/control.sock", "KVTIDE_NODE": "node-a"}
        return Container(line, self.folder / "agent.log", env)


class Running(Node):
    """With the agent up; ``url``: of its pages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        done = self.prepare()
        assert done.returncode == 0, done.stderr
        self.container = self.agent()
        match = re.search(r"http://\S+", self.container.line())
        assert match
        self.url = match[0]

    def get(self, path: str) -> Any:
        return json.loads(net.get(self.url + path))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("node"))
    yield found
    found.container.stop()


@pytest.fixture
def engine(node: Running, tmp_path: Path) -> Iterator[Engine]:
    """Start an engine's container as the patch has it; return what it tells."""
    started: list[Container] = []

    def start(uid: int, *groups: int, bounding: str = USUAL, **env: str) -> dict[str, Any]:
        mounts = (Mount(node.socket, "/run/kvtide", read_only=True),)
        inner = [str(PYTHON), "-m", "tests.unit.kubernetes.engine_in_pod"]
        line = command(mounts, inner, uid=uid, gid=uid, groups=groups, bounding=bounding)
        container = Container(line, tmp_path / f"engine-{len(started)}.log", {"KVTIDE_AGENT_UIDS": str(AGENT), **env})
        started.append(container)
        told: dict[str, Any] = json.loads(container.line())
        return told

    yield start
    for container in started:
        container.stop()


def test_the_folders_are_given_away_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.prepare().returncode == 0
    for folder, mode in ((node.socket, 0o755), (node.state, 0o700)):
        status = folder.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (AGENT, AGENT, mode)
    assert node.prepare(capabilities="").returncode == 0  # nothing is left to do: it needs not even that


def test_without_its_one_capability_it_fails_and_says_so(tmp_path: Path) -> None:
    done = Node(tmp_path).prepare(capabilities="")
    assert done.returncode != 0
    assert "Operation not permitted" in done.stderr


def test_the_agent_is_ready_as_the_probes_ask(node: Running) -> None:
    (container,) = pod()["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert net.get(node.url + container[probe]["httpGet"]["path"])
    eventually(
        lambda: node.get("/api/v1/state")["recorder"]["reason"] != "not begun yet"
    )  # its thread begins by itself
    state = node.get("/api/v1/state")
    assert state["ready"]
    assert state["recorder"]["recording"], state["recorder"]["reason"]
    assert state["actions"]["problem"] == ""  # such as a journal that can't be written
    key = node.socket / "agent.key"
    assert (key.stat().st_uid, key.stat().st_mode & 0o777) == (AGENT, 0o640)


@pytest.mark.parametrize(
    ("uid", "bounding"),
    [(0, USUAL), (0, ""), (1000, "")],
    ids=["root, as vLLM's image", "root without a capability", "another user"],
)
def test_an_engine_connects_and_can_do_no_more(engine: Engine, node: Running, uid: int, bounding: str) -> None:
    told = engine(uid, AGENT, bounding=bounding)  # of the agent's group, as the patch has it
    assert told["link"] == "connected"
    assert (told["unlink"], told["bind"]) == ("EROFS", "EROFS")
    assert told["key"] in {"EROFS", "EACCES"}
    assert told["seen"] == ["agent.key", "agent.sock"]  # not the socket for people's orders
    eventually(lambda: f"engine-{uid}" in {each["engine"] for each in node.get("/api/v1/state")["engines"]})
    assert (node.socket / "agent.sock").is_socket()
    assert (node.folder / "control" / "control.sock").is_socket()


@pytest.mark.parametrize("uid", [0, 1000])
def test_who_is_outside_of_the_group_is_refused_and_told_why(engine: Engine, uid: int) -> None:
    assert engine(uid, bounding="")["link"] == (
        f"refused: /run/kvtide/agent.sock: Permission denied for uid {uid} (link.group)"
    )


def test_an_agent_that_is_none_of_its_own_is_refused(engine: Engine) -> None:
    told = engine(0, KVTIDE_AGENT_UIDS="0")
    assert told["link"].startswith(f"refused: /run/kvtide/agent.sock was bound by uid {AGENT}; allowed: [0]")


def test_who_may_enter_the_agents_container_may_order(node: Running) -> None:
    mounts = (Mount(node.socket, "/run/kvtide"), Mount(node.folder / "control", "/run/kvtide-control"))
    line = command(mounts, [str(KVTIDE), "node", "list", "--json"], uid=AGENT, gid=AGENT)

    def ordered(**env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"], **env}
        )

    assert json.loads(ordered(KVTIDE_CONTROL="/run/kvtide-control/control.sock").stdout) == []
    assert "no agent at /run/kvtide/control.sock" in ordered().stderr


def test_the_nodes_name_is_the_one_that_the_pod_is_given(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "KVTIDE_NODE": "n" * 200}
    command = [str(KVTIDE), "agent", "--socket", str(tmp_path / "s"), "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, "balancer.node" in done.stderr) == (2, True)


def test_what_no_privilege_costs_is_told(node: Running) -> None:
    """The matrix of docs/kubernetes.md: absent, with the reason, and not zero."""
    eventually(lambda: node.get("/api/v1/state")["host"])
    host = node.get("/api/v1/state")["host"]
    assert host["dead"] is None
    assert "host's pid namespace" in host["unavailable"]["dead"]
    line = command((), [str(KVTIDE), "doctor", "--url", node.url, "--json"], uid=AGENT, gid=AGENT)
    done = subprocess.run(line, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""})
    assert "which process here is which of the driver's: the agent does not see the host's pids" in done.stdout
