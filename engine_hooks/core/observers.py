"""Observers: each knows one thing about an engine beyond its counters, and fills one section of the Detail.

Adding one: a file with an :class:`Observer`, a line in ``registry.py``, a section in ``detail.py``, a test.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.how_ended import HowEnded
from engine_hooks.core.marks import Marks, marks_of
from engine_hooks.core.taps import Taps
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.settings import Settings
from engine_hooks.wire_types import Message

Section = Message | tuple[Message, ...] | None


@dataclass(frozen=True, slots=True)
class Context:
    """What an observer gets to work with. ``clock``: monotonic seconds.

    ``marks``: of living requests, by their id, as far as somebody keeps them there; ask :meth:`marks_of`.
    """

    scheduler: Any
    view: SchedulerView
    taps: Taps
    guard: Guard
    settings: Settings
    accounts: KVAccounts
    clock: Callable[[], float]
    how_ended: HowEnded
    marks: dict[str, Marks] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.taps.view = self.view

    def marks_of(self, request: Any) -> Marks:
        """Return whose ``request`` is: read from it once, when it comes."""
        return self.marks.get(request.request_id) or marks_of(request)


class Observer(Protocol):
    """Watches one engine on its own thread. ``HOOK`` names it in error counts; ``SECTION`` is its field of the Detail.

    The constructor takes a :class:`Context`, registers with the taps and raises :class:`UnsupportedError` where this
    vLLM lacks what it needs.
    """

    HOOK: str
    SECTION: str

    def __init__(self, context: Context) -> None: ...

    def section(self, now: float) -> Section | Generator[None, None, Section]:
        """Return the section at ``now`` (seconds of the context's clock): about once a second, cheap, bounded.

        What may take longer than a third of a millisecond is a generator: steps may run where it yields.
        """
        ...


class UnsupportedError(Exception):
    """This engine lacks what an observer needs; the text says what, for people."""
