"""What a lever of an engine core gets to work with."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.levers.at_rest import AtRest
from engine_hooks.core.levers.before_step import BeforeStep
from engine_hooks.core.levers.knobs import Knobs
from engine_hooks.core.levers.releases import Releases
from engine_hooks.core.observers import Observer
from engine_hooks.core.taps import Taps
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.levers.base import Lever
from engine_hooks.settings import Settings


@dataclass(frozen=True, slots=True)
class LeverContext:
    """``engine``: the EngineCore; ``observers`` by their section of the Detail; ``clock``: monotonic seconds.

    ``now``: the clock of the accounts and the observers, which need not have the same origin. ``in_force``: names of
    the levers that are. ``knobs``, ``before_step`` and ``at_rest`` are shared by the levers of one engine.
    """

    engine: Any
    scheduler: Any
    view: SchedulerView
    taps: Taps
    accounts: KVAccounts
    observers: dict[str, Observer]
    guard: Guard
    settings: Settings
    clock: Callable[[], float]
    now: Callable[[], float] = time.monotonic
    in_force: Callable[[], tuple[str, ...]] = tuple
    knobs: Knobs = field(default_factory=Knobs)
    at_rest: AtRest = field(default_factory=AtRest)
    before_step: BeforeStep = field(init=False)
    _releases: list[Releases] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "before_step", BeforeStep(self.scheduler, self.guard))
        if not isinstance(self.engine, weakref.ProxyTypes):
            # An engine that is dropped without a shutdown must not be kept by what could be done to it.
            object.__setattr__(self, "engine", weakref.proxy(self.engine))

    def allows(self, lever: str) -> bool:
        """Whether this process obeys ``lever``. What would cost anything beforehand is set up only then."""
        return lever in self.settings.levers

    def releases(self) -> Releases:
        """Return the one book of who used a block last, kept from the first call on."""
        if not self._releases:
            self._releases.append(Releases(self.view, self.scheduler.kv_cache_manager, self.guard, self.now))
        return self._releases[0]


class CoreLever(Lever, Protocol):
    """A lever of an engine core: see :class:`engine_hooks.levers.base.Lever`."""

    def __init__(self, context: LeverContext) -> None: ...
