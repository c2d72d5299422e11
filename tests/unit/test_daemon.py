"""The daemon's wiring: what its sources are told, whether anybody asks it for anything or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import daemon
from agent.config import AgentConfig
from agent.sources.registry import sources_of
from tests.unit.builders import make_hello, make_report


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
