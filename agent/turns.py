"""The daemon's turns: a few a second, called by the loop itself. To wake a task would take a round of the loop more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Turns:
    """Calls ``turn`` on the running loop, which returns the seconds until the next.

    ``ended`` is done when :meth:`end` was called, or has what a turn has raised.
    """

    def __init__(self, turn: Callable[[], float]) -> None:
        self._turn = turn
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def soon(self) -> None:
        """Have the next turn at once, though not within this call."""
        self._later(0.0)

    def end(self) -> None:
        """Have no more."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self.ended.set_result(None)

    def _later(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self._timer = asyncio.get_running_loop().call_later(seconds, self._take)

    def _take(self) -> None:
        self._timer = None
        try:
            seconds = self._turn()
        except Exception as error:
            if not self.ended.done():
                self.ended.set_exception(error)
            return
        if self._timer is None:  # nobody has asked for the next one meanwhile
            self._later(seconds)
