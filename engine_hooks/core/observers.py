"""Observers: each knows one thing about an engine beyond its counters, and fills one section of the Detail.

Adding one: a file with an :class:`Observer`, a line in ``registry.py``, a section in ``detail.py``, a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.taps import Taps
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.settings import Settings
from engine_hooks.wire_types import Message


@dataclass(frozen=True, slots=True)
class Context:
    """What an observer gets to work with. ``clock``: monotonic seconds."""

    scheduler: Any
    view: SchedulerView
    taps: Taps
    guard: Guard
    settings: Settings
    accounts: KVAccounts
    clock: Callable[[], float]


class Observer(Protocol):
    """Watches one engine on its own thread. ``HOOK`` names it in error counts; ``SECTION`` is its field of the Detail.

    The constructor takes a :class:`Context`, registers with the taps and raises :class:`UnsupportedError` where this
    vLLM lacks what it needs.
    """

    HOOK: str
    SECTION: str

    def __init__(self, context: Context) -> None: ...

    def section(self, now: float) -> Message | tuple[Message, ...] | None:
        """Return the section at ``now`` (seconds of the context's clock): about once a second, cheap, bounded."""
        ...


class UnsupportedError(Exception):
    """This engine lacks what an observer needs; the text says what, for people."""
