"""What the hooks add to vLLM's ``schedule()`` and ``update_from_output()``, with 256 requests running.

A real scheduler and made-up model output, so a step is nothing but the path that is measured: on a real engine the
model's time comes on top and the share is smaller. Steps with and without hooks alternate on one scheduler. CPU time of
the thread: what other processes take is nobody's.
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
from engine_hooks.core.ledger import ReferenceLedger
from engine_hooks.core.reporter import EngineReporter
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.settings import Settings
from tests.bed.agent import AgentProcess
from tests.bed.scheduler import fake_output, make_request, make_scheduler, step

BUDGET = 1.01
BLOCKS = 60_000
RUNNING = 256
BLOCK_TOKENS = 16
PROMPT = 200
MAX_TOKENS = 3_300  # all of them fit into the pool: nobody is preempted
WARM_UP_STEPS = 64
# Steps, half of them with hooks, of which the sums are one pair; with a reporter long enough for several reports, of
# which there are ten a second.
LEDGER_STEPS = 16
REPORTER_STEPS = 96
LINK_SECONDS = 5.0

AfterStep = Callable[[float], None]


class _Hooks:
    """Hooks on one scheduler that can be taken off and put on again."""

    def __init__(self, view: SchedulerView, ledger: ReferenceLedger, reporter: EngineReporter | None) -> None:
        self._view = view
        self._ledger = ledger
        self._reporter = reporter
        self._went_off = 0.0
        self._lengths: list[int] = []
        self.after_step: AfterStep | None = reporter.after_step if reporter else None

    def _tables(self) -> list[Any]:
        return [table for manager in self._view.managers for table in manager.req_to_blocks.values()]

    def off(self) -> None:
        """Take the wrappers off: they are attributes of the objects, in front of the class's methods."""
        for owner in (self._view.pool, *self._view.managers):
            for name in ("get_new_blocks", "touch", "free_blocks", "unpin_blocks", "take_pending_cow_copies"):
                vars(owner).pop(name, None)
        self._lengths = [len(table) for table in self._tables()]
        self._went_off = time.monotonic()

    def on(self) -> None:
        """Put the wrappers on again and tell the hooks what they missed: here, tables only ever grow."""
        ledger, reporter = self._ledger, self._reporter
        ledger.install()
        for table, length in zip(self._tables(), self._lengths, strict=True):
            ledger.references += len(table) - length
            if ledger.changed is not None:
                ledger.changed.update(block.block_id for block in table[length:])
        if reporter is not None and reporter._accounts.audit is not None:
            # Time without hooks does not bring a report, a check or an audit any nearer.
            away = time.monotonic() - self._went_off
            reporter._next_report += away
            reporter._accounts._next_net += away
            if reporter._accounts.audit._next_start:
                reporter._accounts.audit._next_start += away

    def check(self) -> None:
        """Raise unless the hooks worked and found nothing: what failed early costs too little."""
        if self._ledger.references != self._ledger.recount() or self._ledger.net():
            raise RuntimeError(f"the ledger is wrong: {self._ledger.references}, not {self._ledger.recount()}")
        if self._reporter is not None:
            errors, drift = self._reporter._guard.errors, self._reporter._accounts.drift
            if errors or drift:
                raise RuntimeError(f"hook errors {errors}, drift {drift}")


def run(quick: bool) -> list[Row]:
    """Return the ratio with and without: the ledger alone, all that follows a step, and that with an agent."""
    gc.collect()
    pairs, off_seconds = _pairs(_ledger_alone, LEDGER_STEPS, 100 if quick else 600)
    rows = [
        Row("scheduler_path.step", 1e6 * off_seconds, "us"),
        median_ratio("scheduler_path.ledger", pairs, BUDGET),
    ]
    count = 12 if quick else 100
    without_agent = Settings.from_environment({"KVTIDE_SOCKET": "/nonexistent/agent.sock"})
    pairs, _ = _pairs(lambda scheduler: _reporting(scheduler, without_agent), REPORTER_STEPS, count)
    rows += [
        median_ratio("scheduler_path.after_step", pairs, None if quick else BUDGET),  # quick: too few to judge
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
    view = SchedulerView(scheduler)
    ledger = ReferenceLedger(view, Guard())
    ledger.install()
    yield _Hooks(view, ledger, None)


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
        yield _Hooks(reporter._view, ledger, reporter)
    finally:
        if link:
            reporter.close()


def _pairs(hook: Callable[[Any], Iterator[_Hooks]], steps: int, count: int) -> tuple[list[Pair], float]:
    """Return ``count`` pairs of seconds, with and without hooks, and the median seconds of a step without."""
    pairs: list[Pair] = []
    while len(pairs) < count:
        scheduler = make_scheduler(num_blocks=BLOCKS, block_size=BLOCK_TOKENS, max_num_seqs=RUNNING)
        for hooks in hook(scheduler):
            _fill(scheduler)
            gc.collect()
            gc.freeze()
            here = min(count - len(pairs), (MAX_TOKENS - 2 * WARM_UP_STEPS) // steps)
            pairs += [_pair(scheduler, hooks, steps) for _ in range(here)]
            hooks.check()
            gc.unfreeze()
    return pairs, statistics.median(off for _, off in pairs) / (steps // 2)


def _fill(scheduler: Any) -> None:
    """Have all requests run; their lengths are such that each step takes a new block for one in sixteen."""
    for i in range(RUNNING):
        scheduler.add_request(make_request(i, PROMPT + i % BLOCK_TOKENS, MAX_TOKENS))
    while len(scheduler.running) < RUNNING or any(r.num_computed_tokens < PROMPT for r in scheduler.running):
        step(scheduler)
    for _ in range(WARM_UP_STEPS):
        step(scheduler)


def _pair(scheduler: Any, hooks: _Hooks, steps: int) -> Pair:
    """Return the seconds of as many steps with hooks as without, in the order on off off on."""
    on = off = 0.0
    for _ in range(steps // 4):
        on += _timed_step(scheduler, hooks.after_step)
        hooks.off()
        off += _timed_step(scheduler, None)
        off += _timed_step(scheduler, None)
        hooks.on()
        on += _timed_step(scheduler, hooks.after_step)
    return on, off


def _timed_step(scheduler: Any, after_step: AfterStep | None) -> float:
    """Return the CPU seconds that a step takes, making up the model's output not counted."""
    started, began = time.perf_counter(), time.thread_time()
    scheduled = scheduler.schedule()
    chosen = time.thread_time()
    output = fake_output(scheduled, scheduler.requests)
    resumed = time.thread_time()
    scheduler.update_from_output(scheduled, output)
    if after_step is not None:
        after_step(started)
    return time.thread_time() - resumed + chosen - began
