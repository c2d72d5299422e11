"""What the hooks add to vLLM's ``schedule()`` and ``update_from_output()``, with 256 requests running.

A real scheduler and made-up model output, so a step is nothing but the path that is measured: on a real engine the
model's time comes on top and the share is smaller. Blocks of steps with and without hooks alternate on one scheduler,
in an order that swaps from pair to pair. CPU time of the thread: what other processes take is nobody's.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.rows import Pair, Row, median_ratio, total_ratio
from engine_hooks.guard import Guard
from engine_hooks.ledger import ReferenceLedger
from engine_hooks.reporter import EngineReporter
from engine_hooks.scheduler_view import SchedulerView
from engine_hooks.settings import Settings
from tests.bed.agent import AgentProcess
from tests.bed.scheduler import fake_output, make_request, make_scheduler, step

BUDGET = 1.01
BLOCKS = 60_000
RUNNING = 256
PROMPT = 200
MAX_TOKENS = 3_300  # all of them fit into the pool: nobody is preempted
# Every request takes a new block once in 16 steps: a whole number of these cycles has the same work in it.
LEDGER_STEPS = 16
# Long enough for some reports, ten a second, to be in each.
REPORTER_STEPS = 64
LINK_SECONDS = 5.0

AfterStep = Callable[[float], None]


class _Hooks:
    """Hooks on one scheduler that can be taken off and put on again."""

    def __init__(self, scheduler: Any, ledger: ReferenceLedger, reporter: EngineReporter | None) -> None:
        self._scheduler = scheduler
        self._ledger = ledger
        self._reporter = reporter
        self._went_off = time.monotonic()
        self._references: list[int] = []
        self.after_step: AfterStep | None = reporter.after_step if reporter else None

    def _pool(self) -> Any:
        return self._scheduler.kv_cache_manager.block_pool

    def _counts(self) -> list[int]:
        return [block.ref_cnt for block in self._pool().blocks]

    def off(self) -> None:
        """Take the wrappers off: they are attributes of the objects, in front of the class's methods."""
        for owner in (self._pool(), *self._scheduler.kv_cache_manager.coordinator.single_type_managers):
            for name in ("get_new_blocks", "touch", "free_blocks", "unpin_blocks", "take_pending_cow_copies"):
                vars(owner).pop(name, None)
        self._references = self._counts()
        self._went_off = time.monotonic()

    def on(self) -> None:
        """Put the wrappers on again and tell the hooks what they missed, so that they find no fault in it."""
        ledger, reporter = self._ledger, self._reporter
        ledger.install()
        ledger.references = ledger.recount()
        if ledger.changed is not None:
            pairs = zip(self._references, self._counts(), strict=True)
            ledger.changed.update(i for i, (before, now) in enumerate(pairs) if before != now)
        if reporter is not None and reporter._accounts.audit is not None:
            # Time without hooks does not bring a report, a check or an audit any nearer.
            away = time.monotonic() - self._went_off
            reporter._next_report += away
            reporter._accounts._next_net += away
            if reporter._accounts.audit._next_start:
                reporter._accounts.audit._next_start += away


def run(quick: bool) -> list[Row]:
    """Return the ratio with and without: the ledger alone, all that follows a step, and that with an agent."""
    gc.collect()
    pairs, off_seconds = _pairs(_ledger_alone, LEDGER_STEPS, 60 if quick else 600)
    rows = [
        Row("scheduler_path.step", 1e6 * off_seconds, "us"),
        median_ratio("scheduler_path.ledger", pairs, BUDGET),
    ]
    count = 12 if quick else 100
    without_agent = Settings.from_environment({"KVTIDE_SOCKET": "/nonexistent/agent.sock"})
    pairs, _ = _pairs(lambda scheduler: _reporting(scheduler, without_agent), REPORTER_STEPS, count)
    rows += [
        median_ratio("scheduler_path.after_step", pairs, BUDGET),
        total_ratio("scheduler_path.after_step.total", pairs),
    ]
    folder = Path(tempfile.mkdtemp(prefix="kvtide-"))
    try:
        with AgentProcess(folder) as agent:
            settings = Settings.from_environment(agent.engine_env())
            pairs, _ = _pairs(lambda scheduler: _reporting(scheduler, settings, link=True), REPORTER_STEPS, count)
    finally:
        shutil.rmtree(folder)
    rows += [
        median_ratio("scheduler_path.with_agent", pairs),
        total_ratio("scheduler_path.with_agent.total", pairs),
    ]
    return rows


def _ledger_alone(scheduler: Any) -> Iterator[_Hooks]:
    ledger = ReferenceLedger(SchedulerView(scheduler), Guard())
    ledger.install()
    yield _Hooks(scheduler, ledger, None)


def _reporting(scheduler: Any, settings: Settings, *, link: bool = False) -> Iterator[_Hooks]:
    """All of the hooks on an engine that is nothing but its scheduler; with ``link``, talking to an agent."""
    engine = SimpleNamespace(scheduler=scheduler, vllm_config=scheduler.vllm_config)
    reporter = EngineReporter(engine, settings, None)
    if link:
        reporter.start()
        deadline = time.monotonic() + LINK_SECONDS
        while not reporter._link.up:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no link to the agent: {reporter._link.state}")
            time.sleep(0.01)
    else:
        reporter._accounts.start()
    ledger = reporter._accounts.ledger
    if ledger is None:
        raise RuntimeError(f"no exact accounts: {reporter._accounts.support.reason}")
    try:
        yield _Hooks(scheduler, ledger, reporter)
        if reporter._guard.errors or reporter._accounts.drift:
            raise RuntimeError(f"hook errors {reporter._guard.errors}, drift {reporter._accounts.drift}")
    finally:
        if link:
            reporter.close()


def _pairs(hook: Callable[[Any], Iterator[_Hooks]], steps: int, count: int) -> tuple[list[Pair], float]:
    """Return ``count`` pairs of seconds, with and without hooks, and the median seconds of a step without."""
    pairs: list[Pair] = []
    while len(pairs) < count:
        scheduler = make_scheduler(num_blocks=BLOCKS, max_num_seqs=RUNNING)
        for hooks in hook(scheduler):
            _fill(scheduler)
            gc.collect()
            gc.freeze()
            for _ in range(min(count - len(pairs), (MAX_TOKENS - 100) // (2 * steps))):
                pairs.append(_pair(scheduler, hooks, steps, on_first=len(pairs) % 2 == 0))
            gc.unfreeze()
    return pairs, statistics.median(off for _, off in pairs) / steps


def _fill(scheduler: Any) -> None:
    for i in range(RUNNING):
        scheduler.add_request(make_request(i, PROMPT, MAX_TOKENS))
    while len(scheduler.running) < RUNNING or any(r.num_computed_tokens < PROMPT for r in scheduler.running):
        step(scheduler)


def _pair(scheduler: Any, hooks: _Hooks, steps: int, *, on_first: bool) -> Pair:
    if on_first:
        on = _timed(scheduler, steps, hooks.after_step)
        hooks.off()
        off = _timed(scheduler, steps, None)
        hooks.on()
        return on, off
    hooks.off()
    off = _timed(scheduler, steps, None)
    hooks.on()
    return _timed(scheduler, steps, hooks.after_step), off


def _timed(scheduler: Any, steps: int, after_step: AfterStep | None) -> float:
    """Return the CPU seconds that ``steps`` steps take, making up the model's output not counted."""
    cpu, total = time.thread_time, 0.0
    for _ in range(steps):
        started, began = time.perf_counter(), cpu()
        scheduled = scheduler.schedule()
        chosen = cpu()
        output = fake_output(scheduled, scheduler.requests)
        resumed = cpu()
        scheduler.update_from_output(scheduled, output)
        if after_step is not None:
            after_step(started)
        total += cpu() - resumed + chosen - began
    return total
