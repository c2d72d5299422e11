"""A leak under load, with kvtide acting and without: one real engine each, the same load from the same seed.

Acting, the leaked blocks are back in the pool without a restart, clients see nothing but 200, 429 and 503, and most of
the work is done that would have been done without a leak. Left alone, the same engine does not come back.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kvtide_chaos.kv_blocks import arm, leak_env, wait_planted

from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.load import LoadPlan, LoadReport, Tenant, run_load

BLOCKS = 300
LEAKED = 256  # of 299: what is left is less than one of the long requests needs, and behind that all others wait
# Steps are slept, not computed, so that a busy machine makes both runs no slower: the API server and the client, which
# need the processor, have two thirds of each step to spare. Else what is compared is how busy it was at the time.
STEP = {"KVTIDE_TEST_STEP_SECONDS": "0.03"}
LEVERS = "watermark,active_cap,reclaim_orphans,evict_idle,admission"
SECONDS = 75.0
POLICY = """
actions:
  mode: {mode}
  breaches: 2
  cooldown_seconds: 5
"""
LOAD = LoadPlan(
    requests=5000,
    seconds=SECONDS,
    concurrency=24,
    tenants=(
        Tenant("acme", prompt=(64, 400), output=(32, 200), prefix=32),
        Tenant("globex", prompt=(32, 200)),
        Tenant("long", weight=0.1, prompt=(1500, 1600), output=(16, 32)),
    ),
    seed=11,
)


@dataclass(slots=True)
class Run:
    """One load and what the agent saw at its end."""

    load: LoadReport
    engine: dict[str, Any]
    actions: list[dict[str, Any]]
    pid: int


@contextmanager
def serving(place: Path, mode: str) -> Iterator[tuple[AgentProcess, EngineServer]]:
    """An engine that obeys, and an agent that may act or only watch."""
    place.mkdir()
    policy = place / "policy.yaml"
    policy.write_text(POLICY.format(mode=mode))
    with AgentProcess(place, args=["--policy", str(policy)]) as agent:
        env = {**agent.engine_env(), **leak_env(place / "leak"), **STEP, "KVTIDE_LEVERS": LEVERS}
        with EngineServer(place / "engine.log", num_blocks=BLOCKS, env=env) as engine:
            engine.wait_ready()
            agent.wait_live()
            yield agent, engine


def load(agent: AgentProcess, engine: EngineServer, leaks: Path | None) -> Run:
    """Send the load, with a leak soon after its beginning if ``leaks`` says where it is ordered."""

    async def both() -> LoadReport:
        async def leak() -> None:
            await asyncio.sleep(3.0)
            if leaks is not None:
                arm(leaks, LEAKED, LEAKED)
                await asyncio.to_thread(wait_planted, leaks, SECONDS)

        report, _ = await asyncio.gather(run_load(engine.url, LOAD), leak())
        return report

    pid = engine.core_pid()
    report = asyncio.run(both())
    state = agent.state()
    return Run(report, agent.engine(), list((state["actions"] or {}).get("recent", ())), pid)


@pytest.mark.timeout(600)  # three loads, one after the other
def test_a_leak_under_load_is_turned_and_without_kvtide_it_is_not() -> None:
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        place = Path(name)
        with serving(place / "on", "enforce") as (agent, engine):
            sound = load(agent, engine, None)
            turned = load(agent, engine, place / "on" / "leak")
            agent.wait(lambda: agent.pool() is not None and agent.pool()["orphaned"] == 0)
            # The pool is whole again, without a restart.
            assert engine.core_pid() == turned.pid == sound.pid
            agent.wait(lambda: agent.pool() is not None and agent.pool()["held"] == 0)
            pool = agent.pool()
            assert pool is not None
            assert (pool["capacity"], pool["over_freed"], pool["exact"]) == (BLOCKS - 1, 0, True)
            done = [each for each in turned.actions if each["plan"]["lever"] == "reclaim_orphans"]
            assert any(each["phase"] == "done" for each in done), turned.actions
            assert agent.engine()["hooks"]["errors"] == {}
            agent.wait(lambda: not agent.engine()["in_force"], 180.0)  # what throttled is taken back

        with serving(place / "off", "observe") as (agent, engine):
            left = load(agent, engine, place / "off" / "leak")
            assert agent.engine()["pool"]["orphaned"] == LEAKED
            stalled = [each["kind"] for each in agent.state()["judgement"]["verdicts"] if each["phase"] == "confirmed"]
            assert "kv_stall" in stalled
            assert left.actions == []

        for run in (sound, turned):
            strange = [text for text in run.load.errors if text[:4] not in ("429:", "503:")]
            assert strange == []
        assert sound.load.tokens > 0
        goodput = turned.load.tokens / sound.load.tokens
        alone = left.load.tokens / sound.load.tokens
        print(f"\ngoodput against no leak: {goodput:.2f} with kvtide, {alone:.2f} without")
        assert goodput >= 0.70
        assert alone < 0.7 * goodput
