"""One observer on a real scheduler, with a clock that a test moves."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.how_ended import HowEnded
from engine_hooks.core.observers import Context, Observer
from engine_hooks.core.taps import Taps
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.settings import Settings
from engine_hooks.wire import PoolReport

Kind = TypeVar("Kind", bound=Observer)

LONG = 1.0  # an audit slice that ends no pass early


class Watched(Generic[Kind]):
    """A scheduler that ``kind`` watches. ``now``: seconds of the clock that the accounts and the observer see."""

    def __init__(self, scheduler: Any, kind: type[Kind], env: dict[str, str] | None = None) -> None:
        self.now = 0.0
        self.guard = Guard()
        self.scheduler = scheduler
        view = SchedulerView(scheduler)
        settings = Settings.from_environment(env or {})
        # The accounts wrap the pool first, as in an engine.
        self.accounts = KVAccounts(view, self.guard, lambda: self.now, pin_seconds=settings.pin_seconds)
        self.accounts.start()
        self.taps = taps = Taps(scheduler, self.guard, lambda: self.now)
        self.observer = kind(
            Context(
                scheduler=scheduler,
                view=view,
                taps=taps,
                guard=self.guard,
                settings=settings,
                accounts=self.accounts,
                clock=lambda: self.now,
                how_ended=HowEnded(scheduler, taps),
            )
        )
        taps.install()
        assert not taps.missing

    @property
    def pool(self) -> Any:
        """The scheduler's main pool."""
        return self.scheduler.kv_cache_manager.block_pool

    def look(self) -> Any:
        """Return the section now; fails when a hook has raised."""
        section: Any = self.observer.section(self.now)
        while isinstance(section, Generator):
            try:
                next(section)
            except StopIteration as end:
                section = end.value
        assert not self.guard.errors
        return section

    def audit(self) -> PoolReport:
        """Report, as the engine does ten times a second, until the audit has nothing more to do."""
        for _ in range(4):
            self.now += 1.1  # past the audit's period: a fault that the net does not see is found by then
            self.accounts.report()
            while self.accounts.advance_audit(LONG):
                pass
        report = self.accounts.report()
        assert report is not None
        assert not self.guard.errors
        return report
