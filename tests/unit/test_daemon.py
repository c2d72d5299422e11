"""The daemon's wiring: what its sources are told, whether anybody asks it for anything or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import daemon
from agent.config import AgentConfig
from agent.policy.types import Policy
from agent.sources.registry import sources_of
from agent.state import AgentState
from tests.unit.builders import make_hello, make_report
from tests.unit.support import Clock


def test_sources_are_told_of_engines_although_nobody_asks_for_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Callable[[], Any]] = {}

    def kept(config: Any, **ways: Any) -> Any:
        told.update(ways)
        return sources_of(config, **ways)

    monkeypatch.setattr(daemon, "sources_of", kept)
    agent = daemon.Agent(AgentConfig.model_validate({"recorder": {"enabled": False}}))
    assert (told["processes"](), told["starts"]()) == ((), ())
    hello, now = make_hello(), daemon.time.monotonic()
    agent._table.hello(hello, 4711, now)
    agent._table.report(hello.instance, make_report(), now)
    agent._look()
    assert [each.pid for each in told["processes"]()] == [4711]
    assert [each.instance for each in told["starts"]()] == [hello.instance]


class Looked:
    """An agent whose looks are counted, at a time that moves only when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
        self.clock, self.looks = Clock(1000.0), 0
        monkeypatch.setattr(daemon.time, "monotonic", self.clock)
        self.agent = daemon.Agent(AgentConfig.model_validate({"recorder": {"enabled": False}}))
        self.agent._judge.policy = Policy.model_validate({"actions": {"mode": mode}})
        monkeypatch.setattr(self.agent, "_heal", lambda: None)
        monkeypatch.setattr(self.agent._actions, "tick", lambda: None)
        look = self.agent._look

        def counted() -> None:
            self.looks += 1
            look()

        monkeypatch.setattr(self.agent, "_look", counted)

    def at(self, seconds: float) -> AgentState:
        """Ask so many seconds after the beginning; what the daemon's own turns do until then is done."""
        while self.clock.now + daemon.TICK_SECONDS <= 1000.0 + seconds:
            self.clock.now += daemon.TICK_SECONDS
            self.agent._tick()
        self.clock.now = 1000.0 + seconds
        return self.agent.snapshot()


def test_who_asks_once_a_second_comes_to_be_when_a_look_is_and_sees_what_it_saw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = Looked(monkeypatch, "observe")
    looked.at(1.35)
    for second in range(2, 8):
        before = looked.looks
        state = looked.at(second + 0.35)
        assert looked.looks == before + 1
        assert looked.agent._looked_at is not None
        assert state.monotonic == looked.agent._looked_at.monotonic == pytest.approx(1000.35 + second)


def test_who_asks_often_does_not_keep_the_agent_from_looking_nor_make_it_look_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = Looked(monkeypatch, "observe")
    for number in range(200):
        looked.at(0.05 * number)
    assert 10 <= looked.looks <= 13


def test_who_asks_just_too_early_for_a_look_does_not_put_it_off_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(monkeypatch, "observe")
    looked.at(0.25)
    before = looked.agent._last_look
    looked.at(1.0)
    assert looked.agent._last_look == before
    assert looked.agent._next_readings == pytest.approx(before + 1.625)


@pytest.mark.parametrize(("mode", "due"), [("observe", 1001.625), ("enforce", 1001.25)])
def test_a_look_waits_for_nobody_where_something_is_done_by_it(
    monkeypatch: pytest.MonkeyPatch, mode: str, due: float
) -> None:
    looked = Looked(monkeypatch, mode)
    looked.at(0.5)
    assert looked.agent._next_readings == pytest.approx(due)
