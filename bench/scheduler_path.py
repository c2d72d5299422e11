"""What the hooks add to vLLM's ``schedule()`` and ``update_from_output()``, with 256 requests running."""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.paired import Hooks, Load, measure, owners
from bench.rows import Row, median_ratio, total_ratio
from engine_hooks.core.ledger import ReferenceLedger
from engine_hooks.core.reporter import EngineReporter
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.settings import Settings
from tests.bed.agent import AgentProcess

BUDGET = 1.01
LOAD = Load(running=256, blocks=60_000, prompt=200, steps=3_300)  # all of them fit into the pool: nobody is preempted
# Steps, half of them with hooks, of which the sums are one pair; with a reporter long enough for several reports, of
# which there are ten a second.
LEDGER_STEPS = 16
REPORTER_STEPS = 96
LINK_SECONDS = 5.0
WITHOUT_AGENT = Settings.from_environment({"KVTIDE_SOCKET": "/nonexistent/agent.sock"})


def run(quick: bool) -> list[Row]:
    """Return the ratio with and without: the ledger alone, all hooks, and all that with an agent."""
    gc.collect()
    pairs, off_seconds = measure(_ledger_alone, LOAD, LEDGER_STEPS, 100 if quick else 600)
    rows = [
        Row("scheduler_path.step", 1e6 * off_seconds, "us"),
        median_ratio("scheduler_path.ledger", pairs, BUDGET),
    ]
    count = 12 if quick else 100
    pairs, _ = measure(lambda scheduler: reporting(scheduler, WITHOUT_AGENT), LOAD, REPORTER_STEPS, count)
    rows += [
        median_ratio("scheduler_path.all_hooks", pairs, None if quick else BUDGET),  # quick: too few to judge
        total_ratio("scheduler_path.all_hooks.total", pairs),
    ]
    folder = Path(tempfile.mkdtemp(prefix="kvtide-"))
    try:
        with AgentProcess(folder) as agent:
            settings = Settings.from_environment(agent.engine_env())
            pairs, _ = measure(lambda scheduler: reporting(scheduler, settings, link=True), LOAD, REPORTER_STEPS, count)
    finally:
        shutil.rmtree(folder)
    rows += [
        median_ratio("scheduler_path.with_agent", pairs),
        total_ratio("scheduler_path.with_agent.total", pairs),
    ]
    return rows


def _ledger_alone(scheduler: Any) -> Iterator[Hooks]:
    before = [dict(vars(owner)) for owner in owners(scheduler)]
    view = SchedulerView(scheduler)
    ledger = ReferenceLedger(view, Guard())
    ledger.install()
    yield Hooks(scheduler, before, view, ledger, None)


def reporting(scheduler: Any, settings: Settings, *, link: bool = False) -> Iterator[Hooks]:
    """All of the hooks on an engine that is nothing but its scheduler; with ``link``, talking to an agent."""
    before = [dict(vars(owner)) for owner in owners(scheduler)]
    engine = SimpleNamespace(scheduler=scheduler, vllm_config=scheduler.vllm_config)
    reporter = EngineReporter(engine, settings, None)
    reporter.start()
    if link:
        deadline = time.monotonic() + LINK_SECONDS
        while not reporter._link.up:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no link to the agent: {reporter._link.state}")
            time.sleep(0.01)
    ledger = reporter._accounts.ledger
    if ledger is None:
        raise RuntimeError(f"no exact accounts: {reporter._accounts.support.reason}")
    try:
        yield Hooks(scheduler, before, reporter._view, ledger, reporter)
    finally:
        reporter.close()
