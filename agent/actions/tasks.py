"""What waits for a disk or an engine: one task an engine at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from agent.actions.types import Action

logger = logging.getLogger("kvtide.actions")

Work = Coroutine[Any, Any, Any]


class Tasks:
    """``fault`` hears of an exception that nobody has caught, and on which engine."""

    def __init__(self, fault: Callable[[str], None]) -> None:
        self._fault = fault
        self._busy: dict[str, Action | None] = {}  # by engine; an action where it is a new one
        self._running: set[asyncio.Task[Any]] = set()

    def busy(self, engine: str) -> bool:
        """Whether something is being done on an engine."""
        return engine in self._busy

    def begun(self) -> list[Action]:
        """Return the new actions that are being done."""
        return [each for each in self._busy.values() if each is not None]

    def idle(self) -> bool:
        """Whether nothing is being done at all."""
        return not self._running

    def begin(self, engine: str, work: Work, action: Action | None = None) -> asyncio.Task[Any]:
        """Run ``work`` on an engine on which nothing else is being done. ``action``: a new one that it begins."""
        self._busy[engine] = action
        return self.beside(self._guarded(engine, work))

    def alone(self, engine: str, work: Callable[[], Work]) -> None:
        """Do it unless the engine is busy: then the next look will find it still to be done."""
        if not self.busy(engine):
            self.begin(engine, work())

    def beside(self, work: Work) -> asyncio.Task[Any]:
        """Run ``work`` that is on no engine."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def close(self) -> None:
        """End all of it."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _guarded(self, engine: str, work: Work) -> Any:
        try:
            return await work
        except Exception:
            logger.exception("an action on %s went wrong: please report this", engine)
            self._fault(engine)
            return None
        finally:
            del self._busy[engine]
