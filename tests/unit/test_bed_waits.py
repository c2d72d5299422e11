"""What tests wait for and bind, on a machine where much else is done."""

from __future__ import annotations

import random
import socket
from typing import Any

import pytest

from tests.bed import net
from tests.bed.agent import AgentProcess


def test_a_port_is_none_of_the_kernels_and_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[int]] = []

    def draw(ports: range, count: int) -> list[int]:
        drawn.append(sorted(ports)[:count] if not drawn else drawn[0])
        return drawn[-1]

    monkeypatch.setattr(random, "sample", draw)
    one, other = net.free_port(), net.free_port()
    assert one < other, "it was given already, though nobody has bound it yet"
    first = int(net._RANGE.read_text().split()[0])
    assert other < first or first <= net.LOWEST_PORT, "whoever connects may get it before it is bound"
    with socket.create_server(("127.0.0.1", other)):
        assert net.free_port() > other


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> AgentProcess:
    """One that says at first that its engine has no numbers."""
    found = object.__new__(AgentProcess)
    states: list[dict[str, Any]] = [
        {"engines": [{"pool": None}]},
        {"engines": []},
        {"engines": [{"pool": {"held": 3}}]},
    ]
    monkeypatch.setattr(found, "state", lambda: states.pop(0) if len(states) > 1 else states[0], raising=False)
    return found


def test_an_engine_without_numbers_is_waited_for(agent: AgentProcess) -> None:
    assert agent.wait(lambda: agent.engine()["pool"]["held"] == 3, 60.0) < 60.0


def test_what_never_holds_is_told_with_what_it_stumbled_over(agent: AgentProcess) -> None:
    with pytest.raises(TimeoutError, match=r"not within 1.0 s \(KeyError\('tail'\)\)"):
        agent.wait(lambda: agent.engine()["pool"]["tail"], 1.0)


def test_a_wrong_number_is_no_reason_to_wait(agent: AgentProcess) -> None:
    def wrong() -> None:
        raise AssertionError("one is leaked")

    with pytest.raises(AssertionError, match="one is leaked"):
        agent.wait(wrong, 60.0)
