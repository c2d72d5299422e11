"""Every process of an engine is known and joined: tensor-parallel workers, API servers, data-parallel ranks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bed import processes
from tests.bed.agent import KVTIDE, AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.load import LoadPlan, run_load

BLOCKS = 300  # vLLM's null block among them
START_SECONDS = 600.0
LOAD = LoadPlan(requests=10, seconds=300, concurrency=4)

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        yield Path(name)


def up(engine: dict[str, Any], role: str) -> dict[int, dict[str, Any]]:
    """The members of a role that report, by rank."""
    return {m["rank"]: m for m in engine["members"] if m["role"] == role and m["up"]}


def titled(engine: EngineServer, title: str) -> set[int]:
    """The server's processes that call themselves so."""
    return {pid for pid in engine.pids() if processes.title(pid).startswith(f"VLLM::{title}")}


def pids(members: dict[int, dict[str, Any]]) -> set[int]:
    return {member["pid"] for member in members.values()}


def assert_one_pool_each(engine: dict[str, Any], workers: dict[int, dict[str, Any]]) -> None:
    """Each rank has allocated what the core says of one block, for every block and the null block."""
    pool = engine["pool"]
    assert pool["capacity"] == BLOCKS - 1
    (group,) = engine["detail"]["groups"]
    assert group["block_bytes"] == pool["block_bytes"]
    for member in workers.values():
        assert member["worker"]["kv_blocks"] == BLOCKS
        assert member["worker"]["kv_bytes"] == BLOCKS * pool["block_bytes"]
        assert member["worker"]["device"] == "cpu"
        # Model and cache lie in this process's memory: more than nothing, less than all of it.
        assert 0 < member["worker"]["parameter_bytes"] + member["worker"]["kv_bytes"] < member["resident_bytes"]


def serve_some(engine: EngineServer) -> None:
    report = asyncio.run(run_load(engine.url, LOAD))
    assert (report.completed, report.failed) == (LOAD.requests, 0), report.errors


def test_tensor_parallel_workers_and_two_api_servers(place: Path) -> None:
    args = ("--tensor-parallel-size", "2", "--api-server-count", "2")
    agent = AgentProcess(place)
    try:
        with EngineServer(place / "engine.log", num_blocks=BLOCKS, env=agent.engine_env(), args=args) as server:
            server.wait_ready(START_SECONDS)

            def complete() -> bool:
                engines = agent.engines()
                return [len(up(e, "worker")) + len(up(e, "frontend")) for e in engines] == [4] and bool(
                    engines[0]["detail"]
                )

            agent.wait(complete)
            engine = agent.engine()
            workers, frontends = up(engine, "worker"), up(engine, "frontend")
            assert pids(workers) == titled(server, "Worker")
            assert pids(frontends) == titled(server, "APIServer")
            assert engine["pid"] == server.core_pid()
            assert (workers.keys(), frontends.keys()) == ({0, 1}, {0, 1})
            assert [workers[rank]["worker"]["tensor_parallel_rank"] for rank in (0, 1)] == [0, 1]
            assert (engine["workers_expected"], engine["world_size"], engine["frontends_expected"]) == (2, 2, 2)
            assert agent.state()["unjoined_members"] == 0
            assert_one_pool_each(engine, workers)
            status = subprocess.run(
                [str(KVTIDE), "status", "--url", agent.url], capture_output=True, text=True, check=True
            )
            assert "ranks 2/2, api servers 2/2" in status.stdout
            exported = agent.get("/metrics")
            for rank in (0, 1):
                labels = f'{{engine="tiny",role="worker",rank="{rank}"}}'
                assert f"kvtide_member_kv_bytes{labels} {float(workers[rank]['worker']['kv_bytes'])}" in exported

            # The engine neither needs the agent nor waits for it, and all its processes find the next one.
            agent.signal(signal.SIGSTOP)
            serve_some(server)
            agent.kill()
            serve_some(server)
            agent = AgentProcess(place)
            agent.wait(complete)
            again = agent.engine()
            assert {m["pid"] for m in again["members"]} == {m["pid"] for m in engine["members"]}
            assert (again["instance"], again["hooks"]["errors"]) == (engine["instance"], {})
            assert "Traceback" not in server.log.read_text()
        agent.wait(lambda: agent.engines() == [] and agent.state()["unjoined_members"] == 0)
        assert "kvtide_member_up" not in "\n".join(
            line for line in agent.get("/metrics").splitlines() if line[0] != "#"
        )
    finally:
        agent.stop()


def test_data_parallel_ranks(place: Path) -> None:
    args = ("--data-parallel-size", "2")
    with (
        AgentProcess(place) as agent,
        EngineServer(place / "engine.log", num_blocks=BLOCKS, env=agent.engine_env(), args=args) as server,
    ):
        server.wait_ready(START_SECONDS)

        def complete() -> bool:
            engines = agent.engines()
            seen = [(len(up(e, "worker")), bool(e["detail"])) for e in engines]
            return seen == [(1, True)] * 2 and len(up(engines[0], "frontend")) == 2

        agent.wait(complete)
        first, second = agent.engines()
        assert (first["index"], second["index"]) == (0, 1)
        assert (first["engine"], second["engine"]) == ("tiny-dp0", "tiny-dp1")
        assert first["engine_id"] == second["engine_id"]
        assert up(second, "frontend") == {}  # they serve both ranks, and are counted once
        assert pids(up(first, "frontend")) == titled(server, "APIServer")
        workers = [up(engine, "worker") for engine in (first, second)]
        assert pids(workers[0]) | pids(workers[1]) == titled(server, "Worker")
        assert pids(workers[0]).isdisjoint(pids(workers[1]))
        for engine, members in zip((first, second), workers, strict=True):
            assert (engine["workers_expected"], members.keys()) == (1, {0})
            assert_one_pool_each(engine, members)
        assert agent.state()["unjoined_members"] == 0


def test_pipeline_parallel_workers(place: Path) -> None:
    """Each stage has its own layers: one block on one rank is half of the model's."""
    args = ("--pipeline-parallel-size", "2")
    with (
        AgentProcess(place) as agent,
        EngineServer(place / "engine.log", num_blocks=BLOCKS, env=agent.engine_env(), args=args) as server,
    ):
        server.wait_ready(START_SECONDS)

        def complete() -> bool:
            engines = agent.engines()
            return [(len(up(e, "worker")), len(up(e, "frontend")), bool(e["detail"])) for e in engines] == [
                (2, 1, True)
            ]

        agent.wait(complete)
        engine = agent.engine()
        workers = up(engine, "worker")
        assert pids(workers) == titled(server, "Worker")
        assert [workers[rank]["worker"]["pipeline_parallel_rank"] for rank in (0, 1)] == [0, 1]
        assert (engine["workers_expected"], engine["detail"]["groups"][0]["layers"]) == (2, 1)
        assert_one_pool_each(engine, workers)
