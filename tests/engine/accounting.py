"""A real scheduler with our accounts on it, and a clock that moves only when it is told to."""

from __future__ import annotations

from vllm.v1.core.sched.scheduler import Scheduler

from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.wire import PoolReport
from tests.bed.scheduler import make_request, make_scheduler, step

LONG = 1.0  # an audit slice that ends no pass early


class Clock:
    """Time that moves only when told to, so that no check waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A scheduler with our accounts on it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.guard = Guard()
        self.clock = Clock()
        self.accounts = KVAccounts(SchedulerView(scheduler), self.guard, self.clock)
        self.accounts.start()

    @property
    def pool(self):
        return self.scheduler.kv_cache_manager.block_pool

    def report(self) -> PoolReport:
        self.clock.now += 1.0
        report = self.accounts.report()
        assert report is not None
        assert self.guard.errors == {}
        return report

    def audit(self) -> PoolReport:
        """Report, as the engine does, until the audit has nothing more to do."""
        for _ in range(4):
            self.report()
            while self.accounts.advance_audit(LONG):
                pass
        return self.report()

    def free_ids(self) -> list[int]:
        return [block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()]


def fill(scheduler: Scheduler, count: int, *, prompt: int = 100, shared: int = 0, start: int = 0, tokens: int = 500):
    """Have ``count`` requests running, all past their prompts."""
    for i in range(start, start + count):
        scheduler.add_request(make_request(i, prompt, max_tokens=tokens, shared_prefix=shared))
    while len(scheduler.running) < count or any(r.num_computed_tokens < r.num_prompt_tokens for r in scheduler.running):
        step(scheduler)


class Busy(Watched):
    """An engine that is never at rest: requests come and end all the time, and each slice of a pass sees changes."""

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        super().__init__(scheduler or make_scheduler(num_blocks=6000))
        self.serial = 0

    def audit_passes(self, passes: int) -> list[PoolReport]:
        """Run steps with one chunk of an audit between two, until so many passes have ended; a report after each."""
        reports = []
        for _ in range(passes):
            audit = self.accounts.audit
            audit.request()
            known = audit.finding.passes
            while audit.finding.passes == known:
                self.serial += 1
                self.scheduler.add_request(make_request(self.serial, 90, max_tokens=7))
                step(self.scheduler)
                self.accounts.advance_audit(0.0)
            assert not audit.finding.still
            reports.append(self.report())
        return reports
