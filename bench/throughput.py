"""Requests per second with hooks and without, and with an agent that is alive and one that is stopped.

Information: on a machine of few cores the client shares them with the engine, so the interval is wide.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from pathlib import Path

from bench.rows import Pair, Row, median_ratio
from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.load import LoadPlan, Tenant, run_load

REQUESTS = 40
QUICK_REQUESTS = 16
CONCURRENCY = 16
# Of one size, so that batches with different seeds are the same work.
TENANT = Tenant("bench", prompt=(128, 128), output=(32, 32))
LINK_SECONDS = 10.0
SETTLE_SECONDS = 0.5  # a woken agent reads what has piled up


def run(quick: bool) -> list[Row]:
    """Return the ratios of requests per second, on by off and stopped by alive."""
    pairs, requests = (3, QUICK_REQUESTS) if quick else (10, REQUESTS)
    folder = Path(tempfile.mkdtemp(prefix="kvtide-"))
    try:
        with (
            AgentProcess(folder) as agent,
            EngineServer(folder / "on.log", env=agent.engine_env()) as hooked,
            EngineServer(folder / "off.log", env={"KVTIDE_DISABLE": "1"}) as plain,
        ):
            for server in (hooked, plain):
                server.wait_ready()
                _rate(server, 0, requests)
            agent.wait_live(LINK_SECONDS)
            on_off = [_on_off(hooked, plain, seed, requests) for seed in range(1, pairs + 1)]
            plain.stop()
            stopped = [_stopped_alive(hooked, agent, seed, requests) for seed in range(pairs + 1, 3 * pairs, 2)]
    finally:
        shutil.rmtree(folder)
    return [
        median_ratio("throughput.on_off", on_off),
        median_ratio("throughput.agent_stopped_alive", stopped),
        Row("throughput.requests", sum(on for on, _ in on_off) / pairs, "1/s"),
    ]


def _on_off(hooked: EngineServer, plain: EngineServer, seed: int, requests: int) -> Pair:
    """Send the same requests to both servers, whose prefix caches have seen the same; order by the seed."""
    if seed % 2:
        on = _rate(hooked, seed, requests)
        return on, _rate(plain, seed, requests)
    off = _rate(plain, seed, requests)
    return _rate(hooked, seed, requests), off


def _stopped_alive(server: EngineServer, agent: AgentProcess, seed: int, requests: int) -> Pair:
    """One server: different requests of the same size, for it must not have them in its prefix cache."""
    if seed % 4 < 2:
        stopped = _rate_stopped(server, agent, seed, requests)
        return stopped, _rate(server, seed + 1, requests)
    alive = _rate(server, seed, requests)
    return _rate_stopped(server, agent, seed + 1, requests), alive


def _rate_stopped(server: EngineServer, agent: AgentProcess, seed: int, requests: int) -> float:
    agent.signal(signal.SIGSTOP)
    try:
        return _rate(server, seed, requests)
    finally:
        agent.signal(signal.SIGCONT)
        time.sleep(SETTLE_SECONDS)


def _rate(server: EngineServer, seed: int, requests: int) -> float:
    """Return requests per second of one batch."""
    plan = LoadPlan(requests=requests, seconds=120.0, concurrency=CONCURRENCY, tenants=(TENANT,), seed=seed)
    began = time.perf_counter()
    report = asyncio.run(run_load(server.url, plan))
    elapsed = time.perf_counter() - began
    if report.completed != requests:
        raise RuntimeError(f"the load did not complete: {report}")
    return requests / elapsed
