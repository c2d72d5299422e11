"""What the hooks add to vLLM's ``schedule()`` and ``update_from_output()``, with 256 requests running."""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.paired import Hooks, Load, Methods, measure
from bench.rows import Row, median_ratio, total_ratio
from engine_hooks.core.ledger import ReferenceLedger
from engine_hooks.core.reporter import EngineReporter
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.settings import Settings
from tests.bed.agent import AgentProcess
from tests.bed.scheduler import BareEngine

BUDGET = 1.01
LOAD = Load(running=256, blocks=60_000, prompt=200, steps=3_000)  # all of them fit into the pool: nobody is preempted
LINK_SECONDS = 10.0
FIRST_PASSES = 3  # two of the self-test, one that the agent asks for


def run(quick: bool) -> list[Row]:
    """Return the ratio with and without: the ledger alone, and all hooks while they report to an agent."""
    gc.collect()
    count = 40 if quick else 240
    alone = measure(_ledger_alone, LOAD, count)
    rows = [
        Row("scheduler_path.step", 1e6 * alone.step_seconds, "us"),
        median_ratio("scheduler_path.ledger", alone.steps, BUDGET),
    ]
    folder = Path(tempfile.mkdtemp(prefix="kvtide-"))
    try:
        with AgentProcess(folder) as agent:
            settings = Settings.from_environment(agent.engine_env())
            hooks = measure(lambda scheduler: reporting(scheduler, settings), LOAD, count)
    finally:
        shutil.rmtree(folder)
    rows += [
        median_ratio("scheduler_path.hooks", hooks.steps, None if quick else BUDGET),  # quick: too few to judge
        total_ratio("scheduler_path.hooks.total", hooks.sums),
    ]
    return rows


def _ledger_alone(scheduler: Any) -> Iterator[Hooks]:
    methods = Methods(scheduler)
    ledger = ReferenceLedger(SchedulerView(scheduler), Guard())
    ledger.install()
    yield Hooks(methods, ledger, None)


def reporting(scheduler: Any, settings: Settings) -> Iterator[Hooks]:
    """All of the hooks on an engine that is nothing but its scheduler, talking to an agent."""
    methods = Methods(scheduler)
    engine = BareEngine(scheduler=scheduler, vllm_config=scheduler.vllm_config)
    reporter = EngineReporter(engine, settings, None)
    reporter.start()
    deadline = time.monotonic() + LINK_SECONDS
    while not reporter._link.up:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no link to the agent: {reporter._link.state}")
        time.sleep(0.01)
    # The agent asks for an audit as soon as it sees an engine: of a large pool that takes hundreds of steps, once.
    accounts = reporter._accounts
    while accounts.audit is not None and (accounts.audit.finding.passes < FIRST_PASSES or accounts.audit.wants_more):
        if time.monotonic() > deadline:
            raise TimeoutError("the agent did not ask for its first audit, or it did not end")
        reporter.on_wake()
        time.sleep(0.001)
    ledger = reporter._accounts.ledger
    if ledger is None:
        raise RuntimeError(f"no exact accounts: {reporter._accounts.support.reason}")
    try:
        yield Hooks(methods, ledger, reporter)
    finally:
        reporter.close()
