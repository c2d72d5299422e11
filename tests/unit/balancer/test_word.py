"""The fleet's word by the coordinator that agents share: off everywhere within seconds, and no Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from agent.actions.fleet import FleetOrders
from agent.balancer.coordinator import Coordinator
from agent.balancer.http_client import JsonClient
from agent.balancer.kubernetes import KubernetesCoordinator
from agent.balancer.lease_file import FileCoordinator
from agent.balancer.word import OLD_SECONDS, FleetWord
from agent.balancer.words import ANNOTATION, FileWords, LeaseWords, Words
from agent.cli.app import run
from agent.cli.control import ControlClient
from tests.bed.agent import AgentProcess
from tests.unit.actions.test_killed import Engine
from tests.unit.balancer.kube_api import TOKEN, KubeApi
from tests.unit.balancer.made import Clock


class Place:
    """A coordinator's: ``words()`` is what one agent reads by, ``config`` an agent's settings file."""

    def __init__(self, kind: str, folder: Path, api: KubeApi, clock: Clock) -> None:
        self.kind, self.folder, self.api, self.clock = kind, folder, api, clock
        account = folder / "account"
        account.mkdir()
        (account / "token").write_text(TOKEN)
        self.account = account
        self.leases = folder / "leases"
        self.leases.mkdir()
        there = {"url": api.url, "account": str(account), "namespace": "llm", "lease": "fleet"}
        balancer = {"coordinator": kind, "lease_directory": str(self.leases), "kubernetes": there}
        self.config = folder / "agent.yaml"
        self.config.write_text(yaml.safe_dump({"balancer": balancer}))

    def words(self) -> Words:
        if self.kind == "file":
            return FileWords(self.leases)
        return LeaseWords(JsonClient(self.api.url, self.account / "token", None), "llm", "fleet")

    def coordinator(self) -> Coordinator:
        if self.kind == "file":
            return FileCoordinator(self.leases, "n0", 0.5, self.clock.wall)
        client = JsonClient(self.api.url, self.account / "token", None, self.clock.wall)
        return KubernetesCoordinator(client, "llm", "fleet", "n0", 0.5, wall=self.clock.wall)

    def write(self, text: str) -> None:
        if self.kind == "file":
            (self.leases / "fleet").write_text(text)
        else:
            self.api.put("fleet", {"metadata": {"annotations": {ANNOTATION: text}}})

    def fail(self, how: bool) -> None:
        if self.kind == "file":
            self.leases.rename(self.folder / "away") if how else (self.folder / "away").rename(self.leases)
        else:
            self.api.status = 503 if how else 0

    def fleet(self, *words: str) -> int:
        """As a person would: the command has a loop of its own."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(run, ["actions", "fleet", *words, "--config", str(self.config)]).result()


@pytest.fixture(params=["file", "kubernetes"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    api, clock = KubeApi(), Clock()
    api.wall = clock.wall
    yield Place(request.param, tmp_path, api, clock)
    api.close()


async def test_what_one_person_says_all_agents_hear(place: Place) -> None:
    agents = [FleetWord(place.words(), place.clock) for _ in range(2)]
    for each in agents:
        assert each.orders().off.startswith("the fleet's word can't be read"), "not before it is known"
        await each.once()
        assert each.orders() == FleetOrders(), "nobody has said anything"
    assert place.fleet("off", "--why", "INC-1") == 0
    for each in agents:
        await each.once()
        assert each.orders().off.startswith("the fleet's off switch (")
        assert each.orders().off.endswith(": INC-1")
    assert place.fleet("veto", "trim") == 0
    assert place.fleet("undo", "watermark") == 0
    assert place.fleet("close-breaker") == 0
    assert place.fleet("on") == 0
    for each in agents:
        await each.once()
        found = each.orders()
        assert (found.off, [veto.lever for veto in found.vetoes]) == ("", ["trim"])
        assert found.undo is not None
        assert (found.undo.lever, found.closed_at is not None) == ("watermark", True)
        await each.close()


async def test_grants_and_the_word_leave_each_other_alone(place: Place) -> None:
    coordinator, word = place.coordinator(), FleetWord(place.words(), place.clock)
    await coordinator.alive(["m", "n", "o"])
    assert place.fleet("off") == 0
    assert (await coordinator.grant("m")).granted
    await word.once()
    assert word.orders().off != ""
    assert place.fleet("on") == 0
    other = await coordinator.grant("n")
    assert (other.granted, other.ejected) == (False, 1), "the grant of before still counts"
    await coordinator.close()
    await word.close()


@pytest.mark.parametrize("text", ["stop", "off"])
async def test_a_word_that_was_written_by_hand(place: Place, text: str) -> None:
    word = FleetWord(place.words(), place.clock)
    place.write(text)
    await word.once()
    assert word.orders().off.endswith(f": {text}")
    place.write("on")
    await word.once()
    assert word.orders().off == ""
    await word.close()


async def test_the_last_word_stands_for_some_minutes_without_the_coordinator(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    word = FleetWord(place.words(), place.clock)
    await word.once()
    place.fail(True)
    for _ in range(9):
        place.clock.now += OLD_SECONDS / 10
        await word.once()
    assert word.orders().off == "", "its control plane may be upgraded"
    place.clock.now += OLD_SECONDS / 10 - 1.0
    assert word.orders().off == ""
    place.clock.now += 2.0
    assert word.orders().off.startswith("the fleet's word can't be read, for ")
    place.fail(False)
    await word.once()
    assert word.orders().off == ""
    assert [record.levelname for record in caplog.records if record.name == "kvtide.balancer"] == ["ERROR"]
    await word.close()


@pytest.mark.parametrize("text", ["{", '{"off": 1}', "{" + " " * (65 << 10) + "}"])
async def test_one_that_is_garbled_is_off(place: Place, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    word = FleetWord(place.words(), place.clock)
    place.write(text)
    await word.once()
    assert word.orders().off.startswith("the fleet's word can't be read")
    assert place.fleet("on") == 1, "it is not written over"
    assert len(capsys.readouterr().err.splitlines()) == 1
    await word.close()


def test_without_a_coordinator_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert FleetWord(None).orders() == FleetOrders()
    config = tmp_path / "agent.yaml"
    config.write_text("{}\n")
    assert run(["actions", "fleet", "off", "--config", str(config)]) == 2
    assert run(["actions", "fleet", "off"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


class Node:
    """A whole agent of its own, an engine, and a lever that a person holds in force there."""

    def __init__(self, folder: Path, config: Path) -> None:
        policy = config.with_name("policy.yaml")
        policy.write_text("actions: {mode: enforce, ladder: [trim]}\n")
        self.agent = AgentProcess(folder, args=["--config", str(config), "--policy", str(policy)])
        self.engine = Engine(self.agent.socket, self.agent.socket.with_name("agent.key"))
        self.engine.start()

    def order(self) -> None:
        self.agent.wait(lambda: [each["phase"] for each in self.agent.engines()] == ["live"], 20.0)
        order = {"lever": "watermark", "engine": "m", "arguments": {"blocks": 9}}
        assert ControlClient(self.agent.socket).post("/api/v1/orders", order)["phase"] == "in_force"

    def wait(self, what: Callable[[], bool]) -> None:
        self.agent.wait(what, 20.0)

    @property
    def problem(self) -> str:
        return str(self.agent.state()["actions"]["problem"])

    def close(self) -> None:
        self.engine.close()
        self.agent.stop()


def test_two_agents_over_one_coordinator_take_back_what_is_in_force(place: Place) -> None:
    nodes = [Node(place.folder / name, place.config) for name in ("a", "b")]
    try:
        for node in nodes:
            node.wait(lambda node=node: node.problem == "")  # type: ignore[misc]
            node.order()
        assert [node.engine.levers["watermark"].value for node in nodes] == [9, 9]
        assert place.fleet("off", "--why", "INC-1") == 0
        for node in nodes:
            node.wait(lambda node=node: node.engine.levers["watermark"].value == 0)  # type: ignore[misc]
            node.wait(lambda node=node: "INC-1" in node.problem)  # type: ignore[misc]
        assert place.fleet("on") == 0
        for node in nodes:
            node.wait(lambda node=node: node.problem == "")  # type: ignore[misc]
    finally:
        for node in nodes:
            node.close()
