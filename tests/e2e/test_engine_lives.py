"""Engines come, go, and live without an agent."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.load import LoadPlan, LoadReport, run_load


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        yield Path(name)


def serve_some(engine: EngineServer) -> LoadReport:
    return asyncio.run(run_load(engine.url, LoadPlan(requests=10, seconds=300, concurrency=4)))


def series(agent: AgentProcess) -> list[str]:
    """What is told of engines; a verdict that one is missing is about what is not there."""
    lines = agent.get("/metrics").splitlines()
    named = [line for line in lines if re.search(r'[{,]engine="[^"]', line)]
    return [line for line in named if not line.startswith(("kvtide_verdict{", "kvtide_verdict_held{"))]


def test_engine_without_agent_then_killed_then_restarted(place: Path) -> None:
    env = {"KVTIDE_SOCKET": str(place / "agent.sock")}
    with EngineServer(place / "first.log", num_blocks=300, env=env) as first:
        first.wait_ready()
        report = serve_some(first)  # no agent at all
        assert (report.completed, report.failed) == (10, 0), report.errors
        with AgentProcess(place) as agent:
            agent.wait_live()
            old = agent.engine()
            assert old["steps"] > 0
            assert series(agent)
            first.kill()
            agent.wait(lambda: not series(agent))
            assert agent.engines() == []
            with EngineServer(place / "second.log", num_blocks=300, env=env) as second:
                second.wait_ready()
                agent.wait_live()
                new = agent.engine()
                assert new["engine"] == old["engine"]
                assert new["instance"] != old["instance"]
                assert new["engine_id"] != old["engine_id"]
                assert new["steps"] == 0
                assert new["pid"] == second.core_pid()
