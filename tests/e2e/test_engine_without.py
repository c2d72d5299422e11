"""Engines that can't have an agent, or shall have none, start and serve as ever."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.load import LoadPlan, run_load


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        yield Path(name)


@pytest.mark.parametrize(
    "env",
    [
        {"KVTIDE_SOCKET": "/proc/1/kvtide/agent.sock"},
        {"KVTIDE_SOCKET": "/run/" + "x" * 200 + ".sock"},
        {"KVTIDE_DISABLE": "1"},
        {"KVTIDE_TEST_RAISE_ENTRY": "1"},
    ],
    ids=["unwritable socket path", "socket path too long", "disabled", "the entry point raises"],
)
def test_engine_starts_and_serves(place: Path, env: dict[str, str]) -> None:
    with (
        AgentProcess(place) as agent,
        EngineServer(place / "engine.log", num_blocks=300, env={**agent.engine_env(), **env}) as engine,
    ):
        engine.wait_ready()
        report = asyncio.run(run_load(engine.url, LoadPlan(requests=10, seconds=300, concurrency=4)))
        assert (report.completed, report.failed) == (10, 0), report.errors
        assert agent.engines() == []
        said = engine.log.read_text()
        if "KVTIDE_TEST_RAISE_ENTRY" in env:
            assert "the hooks could not be installed" in said
        else:
            assert "Traceback" not in said
