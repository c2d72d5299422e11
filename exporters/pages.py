"""What scrapers get of the state: made in turns, between which the agent's loop serves others, and not for every state
where many ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from agent.state import AgentState

SHARE = 0.05  # of a core that making one page may take over time
AHEAD_SECONDS = 0.2  # of that core that may be taken at once: some twenty renderings of a large node
FEW_PER_SECOND, FEW_AT_ONCE = 2.0, 20.0  # who ask no more often than that are few
TURN_SECONDS = 0.001  # of that core, after which others have their turn
OLDEST_SECONDS = 1.0  # no answer is of an older state, whatever it costs

Clock = Callable[[], float]


class Rendering(Protocol):
    """Makes bytes of a state."""

    def steps(self, state: AgentState, *, compressed: bool) -> Iterator[None]:
        """Make the bytes of ``state`` in pieces, shorter than a turn; :meth:`last` changes with the end of it."""

    def last(self, *, compressed: bool) -> bytes:
        """Return what was made last, gzip's where it is to be ``compressed``."""


class Page:
    """What those who ask get: the state as it is when they ask, or as it was when that was begun which is being made.

    Engines under load change it a hundred times a second. Who asks fifty times a second must not have it put together
    and rendered as often, nor wait for that. Where many ask, the answer is what was made last, and is made anew beside
    it, as often as its share allows and at least twice in :data:`OLDEST_SECONDS`; nobody waits but where it is too old.
    """

    def __init__(
        self,
        snapshot: Callable[[], AgentState],
        rendering: Rendering,
        *,
        clock: Clock = time.monotonic,
        spent: Clock = time.thread_time,
    ) -> None:
        self._snapshot, self._rendering = snapshot, rendering
        self._clock, self._spent = clock, spent
        self._budget, self._few, self._counted = AHEAD_SECONDS, FEW_AT_ONCE, clock()
        self._taken: float | None = None  # when the state was taken that was made last
        self._making: asyncio.Task[None] | None = None

    async def get(self, *, compressed: bool = False) -> bytes:
        """Return the bytes, gzip's where they are to be ``compressed``."""
        asked = self._clock()
        if self._are_few(asked):
            await asyncio.shield(self._made(compressed=compressed))
        elif self._making is None:
            old = self._taken is None or asked - self._taken >= OLDEST_SECONDS / 2
            if old or self._budget > 0:
                self._made(compressed=compressed)
        while self._taken is None or asked - self._taken > OLDEST_SECONDS:
            await asyncio.shield(self._made(compressed=compressed))
        return self._rendering.last(compressed=compressed)

    def _are_few(self, asked: float) -> bool:
        """Count who asks; return whether it may have the state of this moment made for it."""
        passed, self._counted = asked - self._counted, asked
        self._budget = min(AHEAD_SECONDS, self._budget + SHARE * passed)
        self._few = min(FEW_AT_ONCE, self._few + FEW_PER_SECOND * passed)
        # Not above nothing: those who are many would then be few a few times a second, and one in five would wait.
        few = self._few > FEW_AT_ONCE / 2 and self._budget > 0
        self._few = max(0.0, self._few - 1.0)
        return few

    def _made(self, *, compressed: bool) -> asyncio.Task[None]:
        """Return the task that is making it, which begins now where none is."""
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make(compressed=compressed))
            self._making.add_done_callback(_seen)
        return self._making

    async def _make(self, *, compressed: bool) -> None:
        taken, began = self._clock(), self._spent()
        try:
            for _ in self._rendering.steps(self._snapshot(), compressed=compressed):
                spent = self._spent() - began
                if spent >= TURN_SECONDS:
                    self._budget -= spent
                    await asyncio.sleep(0)
                    began = self._spent()  # what others took meanwhile is not ours
            self._taken = taken
        finally:
            self._budget -= self._spent() - began
            self._making = None  # not by a callback: who asks before that has its turn would wait for what is done


def _seen(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # whoever waits has it; where nobody does, the next to whom the last one is too old will
