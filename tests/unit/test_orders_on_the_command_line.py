"""What persons type: ``kvtide actions`` and ``kvtide node`` say what is wrong with it, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.cli import actions, control
from agent.cli.app import run


class Agent:
    """Answers as the agent would; ``asked`` has what was posted."""

    asked: list[tuple[str, Any]]
    answer: dict[str, Any]

    def __init__(self, _socket: Path) -> None: ...

    def post(self, path: str, body: object = None, _seconds: float = 0.0) -> Any:
        self.asked.append((path, body))
        return self.answer


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> type[Agent]:
    Agent.asked, Agent.answer = [], {}
    monkeypatch.setattr(control, "ControlClient", Agent)
    return Agent


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["blocks=5", "blocks=6"], "blocks=6: blocks is given twice"),
        (["quotas.acme=5", "quotas.acme=6"], "quotas.acme=6: quotas.acme is given twice"),
        (["quotas.acme=5", "quotas=6"], "quotas=6: quotas is given twice"),
        (["blocks=nan"], "blocks=nan: must be a finite number"),
        (["quotas.acme=-inf"], "quotas.acme=-inf: must be a finite number"),
        (["blocks=1e999"], "blocks=1e999: must be a finite number"),
        (["blocks"], "blocks: must be NAME=VALUE, such as requests=20"),
    ],
)
def test_arguments_that_mean_nothing_are_not_sent(
    agent: type[Agent], capsys: pytest.CaptureFixture[str], typed: list[str], told: str
) -> None:
    assert run(["actions", "order", "watermark", "m", *typed]) == 2
    assert capsys.readouterr().err == f"kvtide: {told}\n"
    assert not agent.asked


def test_arguments_are_read_as_they_are_meant() -> None:
    given = ["blocks=5", "shed=true", "ratio=0.5", "name=x=y", "quotas.a.b=1", "quotas.c=2"]
    wanted = {"blocks": 5, "shed": True, "ratio": 0.5, "name": "x=y", "quotas": {"a.b": 1, "c": 2}}
    assert actions.arguments_of(given) == wanted


def test_an_id_that_is_empty_is_not_sent(agent: type[Agent], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["actions", "undo", ""]) == 2
    assert "ACTION: must be an id; kvtide actions list" in capsys.readouterr().err
    assert not agent.asked


def test_a_change_names_the_action_that_stays(agent: type[Agent], capsys: pytest.CaptureFixture[str]) -> None:
    agent.answer = {"id": "b2", "phase": "done", "reason": "", "plan": {"amends": "a1"}}
    assert run(["actions", "order", "watermark", "m", "blocks=5"]) == 0
    assert capsys.readouterr().out == (
        "action b2: done; it has changed action a1, which stays in force: undo that one\n"
    )


def test_an_engine_that_nobody_knows_is_held_and_said(agent: type[Agent], capsys: pytest.CaptureFixture[str]) -> None:
    agent.answer = {"engine": "m", "mark": "drain", "engines": ["m", "quiet"]}
    assert run(["node", "drain", "m"]) == 0
    assert capsys.readouterr() == ("m: drain\n", "")
    agent.answer["engines"] = ["m", "quiet"]
    assert run(["node", "drain", "lama"]) == 0
    said = capsys.readouterr()
    assert said.out == "lama: drain\n"
    assert said.err == "No engine is called 'lama' here now: it holds once one is. There are: m, quiet\n"
