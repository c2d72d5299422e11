"""Steps of a real scheduler with something on it and without, in turns: what that something adds to the path.

Made-up model output, so a step is nothing but ``schedule()`` and ``update_from_output()``: on a real engine the model's
time comes on top and the share is smaller. CPU time of the thread: what other processes take is nobody's.

One scheduler, so that both sides have the same objects at the same places in memory: two that do the same differ by
more than what is to be measured. What is taken off is replaced by the method that was there, not deleted: attributes
that come and go would undo what the interpreter has learned about the object.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from bench.rows import Pair
from engine_hooks.core.ledger import ReferenceLedger
from engine_hooks.core.reporter import EngineReporter
from engine_hooks.core.view import SchedulerView
from tests.bed.scheduler import fake_output, make_request, make_scheduler, step

WARM_UP_STEPS = 64
BLOCK_TOKENS = 16
ROUNDS = 12  # of four steps in a pair: with, without, without, with. What the machine does meanwhile hits both alike
METHODS = (
    "_free_blocks", "_free_request", "_maybe_evict_cached_block", "_preempt_request", "add_request", "allocate",
    "allocate_slots", "finish_requests", "free_blocks", "get_new_blocks", "peek_request", "schedule",
    "take_pending_cow_copies", "touch", "unpin_blocks", "update_from_output",
)  # fmt: skip

AfterStep = Callable[[float], None]


class Switched(Protocol):
    """What is measured: it can be taken off a scheduler and put on again. ``check`` raises unless it worked."""

    after_step: AfterStep | None

    def off(self) -> None:
        """Take it off."""
        ...

    def on(self) -> None:
        """Put it on again."""
        ...

    def check(self) -> None:
        """Raise unless it worked: what failed early costs too little."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """``running`` requests in a pool of ``blocks``, each a token a step from ``prompt`` on, for ``steps`` at most."""

    running: int
    blocks: int
    prompt: int
    steps: int


class Methods:
    """The methods of a scheduler's objects that hooks wrap: taken before, to be switched afterwards."""

    def __init__(self, scheduler: Any) -> None:
        view = SchedulerView(scheduler)
        queues = (getattr(scheduler, name, None) for name in ("waiting", "kv_holding_waiting", "skipped_waiting"))
        owners = (scheduler, scheduler.kv_cache_manager, scheduler.encoder_cache_manager, view.pool, *view.managers)
        self._plain = [
            (owner, name, getattr(owner, name))
            for owner in (*owners, *queues)
            for name in METHODS
            if hasattr(owner, name)
        ]

    def wrapped(self) -> list[tuple[Any, str, Any, Any]]:
        """Return owner, name, the method as it was and as it is now, of those that are wrapped now."""
        now = [(owner, name, plain, getattr(owner, name)) for owner, name, plain in self._plain]
        return [entry for entry in now if entry[2] != entry[3]]


class Hooks:
    """All wrappers of our hooks on one scheduler."""

    def __init__(self, methods: Methods, ledger: ReferenceLedger, reporter: EngineReporter | None) -> None:
        self._methods = methods
        self._wrapped = methods.wrapped()
        self._ledger = ledger
        self._reporter = reporter
        self._went_off = 0.0
        self.after_step: AfterStep | None = reporter.after_step if reporter else None

    def off(self) -> None:
        """Set the methods that were there before. Some wrappers come and go: those that are there now come back."""
        self._wrapped = self._methods.wrapped()
        for owner, name, plain, _ in self._wrapped:
            setattr(owner, name, plain)
        self._went_off = time.monotonic()

    def on(self) -> None:
        """Set the wrappers again. Here, tables only grow, by blocks of their own: what was missed is in the free count.

        An audit under way is not told which: it takes them for suspects, and a second pass clears them.
        """
        for owner, name, _, wrapper in self._wrapped:
            setattr(owner, name, wrapper)
        reporter = self._reporter
        if reporter is not None and reporter._accounts.audit is not None:
            # Time without hooks does not bring a report, a check or an audit any nearer.
            away = time.monotonic() - self._went_off
            reporter._next_report += away
            reporter._next_check += away
            reporter._next_detail += away
            reporter._accounts.main._next_net += away
            if reporter._accounts.audit._next_start:
                reporter._accounts.audit._next_start += away

    def check(self) -> None:
        """Raise unless the hooks worked and found nothing."""
        if self._ledger.references != self._ledger.recount() or self._ledger.net():
            raise RuntimeError(f"the ledger is wrong: {self._ledger.references}, not {self._ledger.recount()}")
        if self._reporter is not None:
            errors, drift = self._reporter._guard.errors, self._reporter._accounts.drift
            if errors or drift:
                raise RuntimeError(f"hook errors {errors}, drift {drift}")


@dataclass(slots=True)
class Measured:
    """Pairs of seconds, with and without, over :data:`ROUNDS` rounds of four steps: with, without, without, with.

    ``steps``: the median step of either side, which is what most steps cost, whatever else the machine had to do.
    ``sums``: of all steps, those in which a report or an audit was due among them.
    """

    steps: list[Pair]
    sums: list[Pair]

    @property
    def step_seconds(self) -> float:
        """The median step without."""
        return statistics.median(without for _, without in self.steps)


def measure(put_on: Callable[[Any], Iterator[Switched]], load: Load, count: int, rounds: int = ROUNDS) -> Measured:
    """Return ``count`` pairs of ``rounds`` rounds with what ``put_on`` yields for a scheduler, and without."""
    measured = Measured([], [])
    while len(measured.sums) < count:
        scheduler = make_scheduler(
            num_blocks=load.blocks,
            block_size=BLOCK_TOKENS,
            max_num_seqs=load.running,
            tokens=max(8192, 2 * load.running),
        )
        for switched in put_on(scheduler):
            _fill(scheduler, load)
            gc.collect()
            gc.freeze()
            here = min(count - len(measured.sums), max(1, load.steps // (4 * rounds)))
            for _ in range(here):
                with_it, without = _pair(scheduler, switched, rounds)
                measured.steps.append((statistics.median(with_it), statistics.median(without)))
                measured.sums.append((sum(with_it), sum(without)))
            switched.check()
            gc.unfreeze()
    return measured


def _fill(scheduler: Any, load: Load) -> None:
    """Have all requests run; their lengths are such that each step takes a new block for one in sixteen."""
    for i in range(load.running):
        scheduler.add_request(make_request(i, load.prompt + i % BLOCK_TOKENS, load.steps + 2 * WARM_UP_STEPS))
    while len(scheduler.running) < load.running or any(r.num_computed_tokens < load.prompt for r in scheduler.running):
        step(scheduler)
    for _ in range(WARM_UP_STEPS):
        step(scheduler)


def _pair(scheduler: Any, switched: Switched, rounds: int) -> tuple[list[float], list[float]]:
    with_it: list[float] = []
    without: list[float] = []
    for _ in range(rounds):
        with_it.append(_timed_step(scheduler, switched.after_step))
        switched.off()
        without += [_timed_step(scheduler, None), _timed_step(scheduler, None)]
        switched.on()
        with_it.append(_timed_step(scheduler, switched.after_step))
    return with_it, without


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
