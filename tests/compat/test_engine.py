"""The hooks in this version's engine core: with the agent on the line, and outputs as without them."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.engine import core
from vllm.v1.engine.core import EngineCore

from engine_hooks.core import hook
from engine_hooks.settings import Settings
from tests.bed.agent import AgentProcess
from tests.bed.fake_executor import BLOCK_SIZE
from tests.bed.scheduler import make_request
from tests.compat.build import MAX_STEPS, NOWHERE, LoopCore, make_engine

SECONDS = 20.0


def outputs_of(engine: EngineCore) -> list[tuple[str, list[int]]]:
    """A load with sharing, aborts and preemption; everything that the engine put out, in order."""
    draw, out, live = random.Random(3), [], []

    def step() -> None:
        outputs, _ = engine.step_fn()
        out.extend((o.request_id, list(o.new_token_ids)) for c in (outputs or {}).values() for o in c.outputs)

    for number in range(60):
        prompt, tokens = draw.randrange(20, 200), draw.randrange(5, 60)
        hasher = engine.request_block_hasher
        engine.add_request(make_request(number, prompt, tokens, 16, block_size=BLOCK_SIZE, hasher=hasher))
        live.append(f"r{number}")
        for _ in range(draw.randrange(4)):
            step()
        if draw.random() < 0.2:
            engine.abort_requests([draw.choice(live)])
    for _ in range(MAX_STEPS):
        if not engine.scheduler.has_requests():
            return out
        step()
    raise AssertionError("the load did not come to its end")


def test_outputs_and_pool_are_the_same_with_hooks() -> None:
    plain, watched = make_engine(), make_engine()
    reporter = hook.attach(watched, NOWHERE)
    try:
        assert outputs_of(watched) == outputs_of(plain)
        pools = [engine.scheduler.kv_cache_manager.block_pool for engine in (plain, watched)]
        orders = [[block.block_id for block in pool.free_block_queue.get_all_free_blocks()] for pool in pools]
        assert orders[0] == orders[1]
        assert reporter._guard.errors == {}
        report = reporter._accounts.report()
        assert report is not None
        assert (report.held, report.orphaned, report.exact) == (0, 0, True)
    finally:
        reporter.close()


@pytest.fixture
def agent() -> Iterator[AgentProcess]:
    # The folder's path must be short enough for a socket; tmp_path is not.
    with tempfile.TemporaryDirectory(prefix="kvtide-") as folder, AgentProcess(Path(folder)) as agent:
        yield agent


@pytest.fixture
def installed(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the hooks on the classes; the originals come back afterwards."""
    for owner in [value for value in vars(core).values() if isinstance(value, type) and issubclass(value, EngineCore)]:
        for name in ("__init__", "run_busy_loop"):
            if name in vars(owner):
                monkeypatch.setattr(owner, name, vars(owner)[name])
    hook.install(Settings.from_environment(agent.engine_env()))


@pytest.mark.usefixtures("installed")
def test_busy_loop_reports_to_the_agent_idle_or_not(agent: AgentProcess) -> None:
    engine = LoopCore()

    def pool(name: str) -> Any:
        return (agent.pool() or {}).get(name)

    def client() -> None:
        engine.serve(20)
        agent.wait_live(SECONDS)
        agent.wait(lambda: agent.engine()["steps"] > 20 and pool("held") == 0, SECONDS)
        assert (pool("capacity"), pool("orphaned"), pool("exact")) == (299, 0, True)
        engine.scheduler.kv_cache_manager.block_pool.get_new_blocks(3)  # while the loop waits for a request
        agent.wait(lambda: pool("orphaned") == 3, SECONDS)
        before = agent.engine()["steps"]
        engine.serve(5)  # none of our wake-ups has harmed the loop
        agent.wait(lambda: agent.engine()["steps"] > before and pool("held") == 3, SECONDS)
        assert agent.engine()["hooks"]["errors"] == {}

    engine.run(client)
    agent.wait(lambda: agent.engines() == [], SECONDS)
