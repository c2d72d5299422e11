"""What a person orders for all nodes, by the coordinator that they share: read again and again by a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from msgspec.structs import replace

from agent.actions.fleet import FleetOrders, parse
from agent.balancer.coordinator import TIMEOUT_SECONDS, CoordinatorError
from agent.balancer.words import Words
from agent.units import human_seconds

logger = logging.getLogger("kvtide.balancer")

# The last word counts for so long while the coordinator does not answer: a control plane that is upgraded must not have
# every node take back what it does. Whoever can't reach it can't say anything by it either.
OLD_SECONDS = 600.0
UNREAD = "it has not been read yet"


class FleetWord:
    """``words``: where it is, None where there is no coordinator that has one. ``clock``: monotonic seconds."""

    def __init__(self, words: Words | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._words, self._clock = words, clock
        self._orders: FleetOrders | None = None
        self._read_at = clock()
        self._problem = UNREAD
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read, on the running loop."""
        if self._words is not None:
            self._task = asyncio.create_task(self._run(), name="kvtide-fleet-word")

    async def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._words is not None:
            await self._words.close()

    def orders(self) -> FleetOrders:
        """Return the last word; off where it is not known, or too old."""
        if self._words is None:
            return FleetOrders()
        age = self._clock() - self._read_at
        if self._orders is None or age > OLD_SECONDS:
            old = "" if self._orders is None else f", for {human_seconds(age)}"
            return FleetOrders(off=f"the fleet's word can't be read{old} ({self._words.place}): {self._problem}")
        if self._orders.off:
            return replace(self._orders, off=f"the fleet's off switch ({self._words.place}): {self._orders.off}")
        return self._orders

    async def once(self) -> None:
        """Read it once; raises nothing."""
        if self._words is None:
            return
        try:
            text = await asyncio.wait_for(self._words.read(), TIMEOUT_SECONDS)
            orders = parse(text)
        except Exception as error:
            if not isinstance(error, CoordinatorError | ValueError | TimeoutError):
                logger.exception("the fleet's word can't be read: please report this")
            problem = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            if self._problem in ("", UNREAD):
                logger.error("the fleet's word can't be read (%s): %s", self._words.place, problem)
            self._problem = problem
            if isinstance(error, ValueError):
                self._orders = None  # it says something, and nobody knows what
            return
        if self._problem not in ("", UNREAD):
            logger.info("the fleet's word is read again (%s)", self._words.place)
        self._orders, self._read_at, self._problem = orders, self._clock(), ""

    async def _run(self) -> None:
        while self._words is not None:
            await self.once()
            await asyncio.sleep(self._words.seconds)
