"""vLLM's real scheduler and engine core, of whatever version, and our hooks on them."""

from __future__ import annotations

import argparse
import os
import queue
import random
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.bed.core_proc import FakeClientCore
from tests.bed.fake_executor import BLOCK_SIZE, FakeExecutor
from tests.bed.scheduler import make_config, make_request, step

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.llama import LlamaForCausalLM
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import RequestStatus

from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.settings import Settings
from engine_hooks.wire import PoolReport

# The class that vLLM knows by this name already; it would look at it in a process that imports everything once more.
ModelRegistry.register_model(LlamaForCausalLM.__name__, LlamaForCausalLM)

NOWHERE = Settings.from_environment({"KVTIDE_SOCKET": "/proc/none/agent.sock"})
MAX_STEPS = 20_000
LONG = 1.0  # an audit slice that ends no pass early


class Watched:
    """A scheduler with our accounts on it, and a clock that moves only when it is asked."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler: Any = scheduler
        self.pool: Any = scheduler.kv_cache_manager.block_pool
        self.guard = Guard()
        self.now = 1000.0
        self.accounts = KVAccounts(SchedulerView(scheduler), self.guard, lambda: self.now)
        self.accounts.start()
        assert self.accounts.support.ok, self.accounts.support.reason

    def report(self) -> PoolReport:
        """Return what the engine would report now."""
        self.now += 1.0
        report = self.accounts.report()
        assert report is not None
        assert self.guard.errors == {}
        return report

    def audit(self) -> PoolReport:
        """Report, as the engine does, until the audit has nothing more to do."""
        self.accounts.request_audit()
        for _ in range(4):
            while self.accounts.advance_audit(LONG):
                pass
            self.report()
        return self.report()

    def check(self) -> None:
        """Fail unless the books balance, and agree with a count of the blocks themselves."""
        ledger = self.accounts.ledger
        assert ledger is not None
        held = [block for block in self.pool.blocks if block.ref_cnt and not block.is_null]
        assert ledger.references == sum(block.ref_cnt for block in held)
        assert ledger.net() == 0
        report = self.report()
        assert (report.held, report.orphaned, report.over_freed) == (len(held), 0, 0)

    def tables(self) -> list[Any]:
        """The block tables of all requests, of every group."""
        managers = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        return [blocks for manager in managers for blocks in manager.req_to_blocks.values() if blocks]

    def named(self) -> dict[int, int]:
        """What the last audit named: block id -> references beyond what is explained."""
        assert self.accounts.audit is not None
        return dict(self.accounts.audit.finding.excess)


def play(scheduler: Any, look: Callable[[], None], *, shared: int, aborts: float = 0.2, requests: int = 60) -> None:
    """Run ``requests`` requests of mixed length to their end, some of them aborted; ``look`` after each step.

    ``shared`` prompt tokens are common to all.
    """
    draw = random.Random(7)
    for number in range(requests):
        scheduler.add_request(
            make_request(number, shared + draw.randrange(20, 200), draw.randrange(5, 60), shared_prefix=shared)
        )
        for _ in range(draw.randrange(4)):
            step(scheduler)
            look()
        if draw.random() < aborts and scheduler.requests:
            scheduler.finish_requests(draw.choice(list(scheduler.requests)), RequestStatus.FINISHED_ABORTED)
            look()
    for _ in range(MAX_STEPS):
        if not scheduler.has_requests():
            return
        step(scheduler)
        look()
    raise AssertionError("the load did not come to its end")


def fill(scheduler: Any, count: int, *, prompt: int, shared: int) -> None:
    """Have ``count`` requests running, all past their prompts."""
    for number in range(count):
        scheduler.add_request(make_request(number, prompt, 500, shared_prefix=shared))
    for _ in range(MAX_STEPS):
        running = scheduler.running
        if len(running) == count and all(r.num_computed_tokens >= r.num_prompt_tokens for r in running):
            return
        step(scheduler)
    raise AssertionError("not all requests came to run")


def make_engine(blocks: int = 150) -> EngineCore:
    """A real EngineCore in this process, over an executor that makes up tokens."""
    config = make_config(block_size=BLOCK_SIZE, max_num_seqs=16, max_model_len=1024)
    config.cache_config.num_gpu_blocks_override = blocks
    engine = EngineCore(config, FakeExecutor, log_stats=True)
    engine.model_executor.requests = engine.scheduler.requests
    return engine


class LoopCore(FakeClientCore):
    """A real EngineCoreProc whose client waits for each request's last token; ``run`` is its busy loop."""

    def __init__(self, blocks: int = 300) -> None:
        self.finished: queue.Queue[str] = queue.Queue()
        super().__init__(argparse.Namespace(running=16, prefix=64, blocks=blocks, step_ms=0.0, max_tokens=20))

    def process_output_sockets(self, outputs: Any, coordinator: Any, engine_index: int) -> None:
        """Note which requests have finished, until told to end."""
        while not isinstance(item := self.output_queue.get(), bytes):
            for output in item[1].outputs:
                if output.finish_reason is not None:
                    self.finished.put(output.request_id)

    def serve(self, count: int, timeout: float = 30.0) -> None:
        """Send ``count`` requests and wait until all have finished; for the client's thread."""
        for _ in range(count):
            self.add()
        for _ in range(count):
            self.finished.get(timeout=timeout)

    def run(self, client: Callable[[], None]) -> None:
        """Run the busy loop on this, the main, thread until ``client``, on another one, has returned; raise what
        that raised.

        It ends as every version's does: by the SystemExit of a signal handler.
        """
        failed: list[BaseException] = []

        def end(*_: Any) -> None:
            raise SystemExit

        def drive() -> None:
            try:
                client()
            except BaseException as error:
                failed.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, end)
        thread = threading.Thread(target=drive)
        try:
            with suppress(SystemExit):
                thread.start()
                self.run_busy_loop()
        finally:
            signal.signal(signal.SIGUSR1, before)
            thread.join()
            self.output_queue.put_nowait(self.ENGINE_CORE_DEAD)
            # Its last act is to empty the accelerator's cache, which newer versions refuse where there is none.
            with suppress(RuntimeError):
                self.shutdown()
        if failed:
            raise failed[0]
