"""The hooks' own time as a share of the engine's step time, on a real server under load.

The tiny model's steps are short, so the share is larger here than on any model that people serve.

Of our own time is measured, each time: what each wrapper does itself before and after vLLM's method, by the wall, its
looks at the clock among it; what is done after a step that only counts it, by the wall too; and what is done after the
others, or for a wake-up while requests are there, by the thread's CPU time. Not measured are the calls of the wrappers
as such, and those around what only looks (a queue's head, a block that is evicted): a tenth of a microsecond each. What
the link's side threads do is not the engine's thread's.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from bench.rows import Row
from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.load import LoadPlan, run_load

BUDGET = 0.005
CONCURRENCY = 16
WARM_UP_REQUESTS = 16
LINK_SECONDS = 10.0
SETTLE_SECONDS = 2.5  # an idle engine reports once a second

HOOKS, STEP_TIME, STEPS = "kvtide_hook_seconds_total", "kvtide_engine_step_seconds_total", "kvtide_engine_steps_total"


def run(quick: bool) -> list[Row]:
    """Return the share over a load of some hundred requests, and what it is made of."""
    folder = Path(tempfile.mkdtemp(prefix="kvtide-"))
    try:
        with AgentProcess(folder) as agent, EngineServer(folder / "engine.log", env=agent.engine_env()) as engine:
            engine.wait_ready()
            agent.wait_live(LINK_SECONDS)
            _load(engine, WARM_UP_REQUESTS, seed=0)
            before = _settled(agent)
            _load(engine, 150 if quick else 500, seed=1)  # a second's load has an audit's pass in it, or none
            after = _settled(agent)
    finally:
        shutil.rmtree(folder)
    hooks, steps, number = (after[name] - before[name] for name in (HOOKS, STEP_TIME, STEPS))
    return [
        Row("hook_share", hooks / steps, "ratio", BUDGET),
        Row("hook_share.per_step", 1e6 * hooks / number, "us"),
        Row("hook_share.step", 1e6 * steps / number, "us"),
        Row("hook_share.steps", number, "steps"),
    ]


def _load(engine: EngineServer, requests: int, seed: int) -> None:
    plan = LoadPlan(requests=requests, seconds=240.0, concurrency=CONCURRENCY, seed=seed)
    report = asyncio.run(run_load(engine.url, plan))
    if report.completed != requests:
        raise RuntimeError(f"the load did not complete: {report}")


def _settled(agent: AgentProcess) -> dict[str, float]:
    time.sleep(SETTLE_SECONDS)
    return agent.metrics()
