"""``kvtide version``: both sides of an installation, also where they differ, and where there is no other side."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from agent.cli.app import app
from agent.cli.client import AgentClient
from engine_hooks import __version__
from engine_hooks.wire import WIRE_VERSION
from tests.bed import net
from tests.unit.builders import make_engine, make_state

FIRST = f"kvtide {__version__}, wire {WIRE_VERSION}"


def said(*arguments: str) -> list[str]:
    result = CliRunner().invoke(app, ["version", *arguments])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the agent answer this."""

    def answer(state: bytes) -> None:
        monkeypatch.setattr(AgentClient, "state_json", lambda _self: state)

    return answer


def test_both_sides(answer: Any) -> None:
    engines = (make_engine(engine="llama"), make_engine(engine="old", hooks_version="0.0.9"))
    answer(msgspec.json.encode(make_state(*engines)))
    agent, llama, old = said("--url", "http://node:9477")[1:]
    assert agent == f"agent at http://node:9477: {make_state().version}"
    assert llama == f"engine llama: hooks {engines[0].hooks_version}, vLLM {engines[0].engine_version}"
    assert old.startswith("engine old: hooks 0.0.9, ")


def test_another_version_of_the_state_is_read(answer: Any) -> None:
    """An older agent knows less, a newer one says more: its version can be told all the same."""
    answer(b'{"version": "9.1", "link": {"wire_version": 7, "rejected_frames": {"unknown_version": 12}}, "new": [1]}')
    assert said()[1:] == [
        "agent at http://127.0.0.1:9477: 9.1, wire 7",
        "frames of another wire version, which were refused: 12",
    ]
    answer(b'{"version": "0.0.1"}')
    assert said()[1:] == ["agent at http://127.0.0.1:9477: 0.0.1"]


@pytest.mark.parametrize("state", [b"[]", b"\xff", b'{"version": 3}'])
def test_what_is_no_state_is_said(answer: Any, state: bytes) -> None:
    answer(state)
    first, second = said()
    assert first == FIRST
    assert second.startswith("agent: http://127.0.0.1:9477: not a kvtide state")


def test_nobody_answers() -> None:
    url = f"http://127.0.0.1:{net.free_port()}"
    first, second = said("--url", url)
    assert first == FIRST
    assert second.startswith(f"agent: no agent answers at {url}")
    told = msgspec.json.decode("\n".join(said("--url", url, "--json")))
    assert (told["kvtide"], told["wire"], told["agent"], told["engines"]) == (__version__, WIRE_VERSION, None, [])


def test_an_address_that_is_none() -> None:
    assert CliRunner().invoke(app, ["version", "--url", "http://"]).exit_code != 0


def test_what_a_name_holds_steers_no_terminal(answer: Any) -> None:
    answer(b'{"version": "1", "engines": [{"engine": "a\\u001b[2J", "engine_version": "1", "hooks_version": "1"}]}')
    assert "\x1b" not in "".join(said())
