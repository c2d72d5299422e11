"""An engine that is taken out of the load balancer, and waited for until nothing runs there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from agent.actions.own import Forbidden
from agent.state import AgentState, EngineState
from agent.supervisor.base import RefusedError

LOOK_SECONDS = 0.25
SETTLE_SECONDS = 2.0  # a load balancer obeys by then, and what it had sent has arrived


class Drain(Protocol):
    """The weight at the load balancer."""

    def drain(self, engine: str, why: str) -> bool:
        """Take an engine out; return whether its weight can be moved at all."""

    def undrain(self, engine: str) -> None:
        """Let it be judged again."""

    def drain_refused(self, engine: str) -> str:
        """Return why the fleet's coordinator does not let it go below 50 %; empty while it does, or is being asked."""


class Drained:
    """``look`` gives the state that was looked at last. ``drain_seconds``: what runs may go on for so long. ``clock``:
    monotonic seconds.
    """

    def __init__(
        self,
        drain: Drain,
        look: Callable[[], AgentState | None],
        *,
        drain_seconds: float,
        settle_seconds: float = SETTLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._drain, self._look, self._clock = drain, look, clock
        self._drain_seconds, self._settle = drain_seconds, settle_seconds

    async def wait(self, engine: str, why: str, forbidden: Forbidden, *, queue: bool = False) -> str:
        """Take it out, and wait until nothing runs (``queue``: nor waits), for a time; return how that went.

        Raises :class:`RefusedError` where it may not be taken out, or what that is for is ``forbidden`` meanwhile. It
        stays out until :meth:`end`.
        """
        moved = self.begin(engine, why)
        began, deadline = self._clock(), self._clock() + self._drain_seconds
        how = "drained" if moved else "its weight is not moved (balancer.mode)"
        while (now := self._clock()) < deadline:
            if no := forbidden():
                raise RefusedError(no)
            if moved and (refused := self._drain.drain_refused(engine)):
                raise RefusedError(f"it may not be taken out of the load balancer: {refused}")
            left = (self.running(engine), self.waiting(engine) if queue else 0)
            if left == (0, 0) and (not moved or now - began >= self._settle):
                return how
            await asyncio.sleep(LOOK_SECONDS)
        return f"{how}, {self.told(engine)} after {self._drain_seconds:g} s"

    def begin(self, engine: str, why: str) -> bool:
        """Take it out; return whether its weight can be moved at all."""
        return self._drain.drain(engine, why)

    def end(self, engine: str) -> None:
        """Let it be judged again."""
        self._drain.undrain(engine)

    def ranks(self, engine: str) -> list[EngineState]:
        """Return the engine and the data-parallel ranks beside it, which are drained with it."""
        state = self._look()
        engines = state.engines if state is not None else ()
        own = next((each for each in engines if each.engine == engine), None)
        if own is None:
            return []
        return [each for each in engines if each.engine_id == own.engine_id and each.host == own.host]

    def running(self, engine: str) -> int | None:
        """Return how many requests run; None where one of its ranks does not say."""
        return _sum([each.running for each in self.ranks(engine)])

    def waiting(self, engine: str) -> int | None:
        """Return how many wait; None where one of its ranks does not say."""
        return _sum([each.waiting for each in self.ranks(engine)])

    def told(self, engine: str) -> str:
        """Return what runs, for people."""
        running = self.running(engine)
        return f"with {'an unknown number' if running is None else running} running"


def _sum(counts: list[int | None]) -> int | None:
    return sum(each or 0 for each in counts) if counts and None not in counts else None
