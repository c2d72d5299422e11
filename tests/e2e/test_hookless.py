"""A server without hooks is found and followed without a restart; one whose hooks report is not scraped as well."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.load import LoadPlan, Tenant, run_load
from tests.e2e.conftest import Rig

BLOCKS = 200
SEATS, CLIENTS = 2, 5  # three of five requests wait, all the time
DISCOVER = "sources:\n  device: {enabled: false}\n  scrape: {discover: true}\n"
LONG = Tenant("acme", prompt=(100, 100), output=(1600, 1600))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        yield Path(name)


def discovering(folder: Path, settings: Path) -> AgentProcess:
    """Start an agent that looks for servers on this machine."""
    settings.write_text(DISCOVER)
    return AgentProcess(folder, args=["--config", str(settings)])


def scraped(agent: AgentProcess, engine: EngineServer) -> dict[str, Any] | None:
    """Return what the agent reads on the engine's page; others may run on this machine."""
    found = (agent.state()["scrape"] or {}).get("engines", [])
    return next((each for each in found if each["pid"] == engine.pid), None)


def phase(agent: AgentProcess, engine: EngineServer) -> str:
    return (scraped(agent, engine) or {}).get("phase", "not there")


def series(agent: AgentProcess, label: str) -> dict[str, float]:
    """Return the ``kvtide_scraped_`` samples of one engine by name and further labels."""
    rows = [line.rpartition(" ") for line in agent.get("/metrics").splitlines() if line.startswith("kvtide_scraped_")]
    engine = f'engine="{label}"'
    found = [(name, value) for name, _, value in rows if engine in name]
    return {name.replace(engine, "").replace("{}", "").replace("{,", "{"): float(value) for name, value in found}


async def test_a_busy_engine_is_attached_to_without_a_restart(place: Path) -> None:
    with EngineServer(
        place / "engine.log", num_blocks=BLOCKS, max_num_seqs=SEATS, env={"KVTIDE_DISABLE": "1"}
    ) as engine:
        await asyncio.to_thread(engine.wait_ready)
        plan = LoadPlan(requests=10_000, seconds=120, concurrency=CLIENTS, tenants=(LONG,), seed=4)
        load = asyncio.create_task(run_load(engine.url, plan))
        try:
            before = engine.pids()
            await asyncio.to_thread(_attach, engine, place)
            assert engine.pids() == before
        finally:
            load.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await load


def _attach(engine: EngineServer, place: Path) -> None:
    own = engine.metrics
    while own()["vllm:num_requests_waiting"] != CLIENTS - SEATS:  # the load has begun
        time.sleep(0.2)
    with discovering(place / "agent", place / "agent.yaml") as agent:
        agent.wait(lambda: phase(agent, engine) == "up", 20.0)
        agent.wait(lambda: (scraped(agent, engine) or {})["generation_tokens_per_second"] is not None, 15.0)
        earlier, found, later = own(), scraped(agent, engine), own()
        assert found is not None
        print(found)
        for name in series(agent, found["engine"]).items():
            print(name)
        from pathlib import Path as P; import subprocess
        print(subprocess.run([".venv/agent/bin/kvtide","status","--url",agent.url],capture_output=True,text=True))
