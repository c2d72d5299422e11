"""What a lever of an engine core gets to work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.observers import Observer
from engine_hooks.core.taps import Taps
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.levers.base import Lever
from engine_hooks.settings import Settings


@dataclass(frozen=True, slots=True)
class LeverContext:
    """``engine``: the EngineCore; ``observers`` by their section of the Detail; ``clock``: monotonic seconds."""

    engine: Any
    scheduler: Any
    view: SchedulerView
    taps: Taps
    accounts: KVAccounts
    observers: dict[str, Observer]
    guard: Guard
    settings: Settings
    clock: Callable[[], float]


class CoreLever(Lever, Protocol):
    """A lever of an engine core: see :class:`engine_hooks.levers.base.Lever`."""

    def __init__(self, context: LeverContext) -> None: ...
