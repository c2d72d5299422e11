"""Grants of the coordinator: asked for, renewed and given back by a task of its own, so that weights never wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from agent.balancer.coordinator import LEASE_SECONDS, TIMEOUT_SECONDS, Coordinator, CoordinatorError, Grant
from agent.balancer.gate import ReadinessGate
from agent.balancer.state import Weight

logger = logging.getLogger("kvtide.balancer")

PASS_SECONDS = 0.25
ALIVE_SECONDS = LEASE_SECONDS / 3
RENEW_SECONDS = LEASE_SECONDS / 3
AGAIN_SECONDS = 5.0  # after a refusal or a failure
CLOSE_SECONDS = 2.0


class Wanted(NamedTuple):
    """``present``: engines that count for the share; ``wanted``: those that need a grant; ``pods``: what each pod's
    gate is to say.
    """

    present: Sequence[str] = ()
    wanted: Sequence[str] = ()
    pods: Mapping[str, Weight] = {}


class Grants:
    """What ``coordinator`` has granted. ``refused_total``, ``failed_total``, ``problem``, ``fleet``, ``ejected``: see
    :class:`agent.balancer.state.BalancerState`. ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        gate: ReadinessGate | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = coordinator.name
        self.refused_total = self.failed_total = 0
        self.problem = ""
        self.fleet: int | None = None
        self.ejected: int | None = None
        self._coordinator, self._gate, self._clock = coordinator, gate, clock
        self._wanted = Wanted()
        self._until: dict[str, float] = {}
        self._returning: dict[str, float] = {}  # until when the coordinator may still count what is not used any more
        self._refusals: dict[str, str] = {}
        self._next: dict[str, float] = {}
        self._next_alive = 0.0
        self._told: Sequence[str] = ()
        self._task: asyncio.Task[None] | None = None

    def holds(self, engine: str) -> bool:
        """Return whether ``engine`` may be below 50 % now."""
        return self._clock() < self._until.get(engine, 0.0)

    def refusal(self, engine: str) -> str:
        """Return why it may not, empty where that was not asked."""
        return self._refusals.get(engine, "")

    def want(self, present: Sequence[str], wanted: Sequence[str], pods: Mapping[str, Weight]) -> None:
        """Say what is needed from now on."""
        self._wanted = Wanted(present, wanted, pods)
        for kept in (self._refusals, self._next):
            for engine in kept.keys() - set(wanted) - set(self._until):
                del kept[engine]
        if not wanted and not self._until:
            self.fleet = self.ejected = None  # what it once said is not so for ever

    def start(self) -> None:
        """Begin asking, on the running loop."""
        self._task = asyncio.create_task(self._run(), name="kvtide-balancer")

    async def close(self) -> None:
        """Give all grants back and tell gates of the end, as far as that goes in two seconds."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                if self._gate is not None and self._wanted.pods:
                    await self._done(self._gate.tell(self._wanted.pods))
                for engine in [*self._until, *self._returning]:
                    await self._done(self._coordinator.release(engine))
                await self._coordinator.close()
                if self._gate is not None:
                    await self._gate.close()

    async def once(self) -> None:
        """Ask what is due now: one after the other, each for a few seconds at most."""
        wanted, now = self._wanted, self._clock()
        if wanted.present and (now >= self._next_alive or wanted.present != self._told):
            self._told = wanted.present
            told = await self._done(self._coordinator.alive(wanted.present))
            self._next_alive = now + (ALIVE_SECONDS if told else AGAIN_SECONDS)
        for engine in wanted.wanted:
            if now >= self._next.get(engine, 0.0):
                await self._ask(engine)
        await self._give_back(self._wanted.wanted)
        if self._gate is not None and wanted.pods:
            await self._done(self._gate.tell(wanted.pods), 1 + len(wanted.pods))

    async def _give_back(self, wanted: Sequence[str]) -> None:
        """Release what is not wanted. It does not count here from before the coordinator hears of it: by the time at
        which that has said so, or has not, it may be another's.
        """
        for engine in self._until.keys() - set(wanted):
            self._returning[engine] = self._until.pop(engine)
            self._next.pop(engine, None)  # who needs it again asks at once
        for engine, until in list(self._returning.items()):
            asked_again = engine in wanted
            if asked_again or self._clock() >= until or await self._done(self._coordinator.release(engine)):
                del self._returning[engine]

    async def _run(self) -> None:
        while True:
            await self.once()
            await asyncio.sleep(PASS_SECONDS)

    async def _ask(self, engine: str) -> None:
        asked = self._clock()
        self._next[engine] = asked + AGAIN_SECONDS
        answers: list[Grant] = []

        async def ask() -> None:
            answers.append(await self._coordinator.grant(engine))

        if not await self._done(ask()):
            self._refusals[engine] = f"the coordinator can't be asked: {self.problem}"
            self.refused_total += not self.holds(engine)  # a grant lasts over renewals that fail, until its end
            return
        grant = answers[0]
        self.fleet, self.ejected = grant.fleet, grant.ejected
        if grant.granted:
            # From before it was asked: it ends here no later than it does there.
            self._until[engine] = asked + LEASE_SECONDS
            self._next[engine] = asked + RENEW_SECONDS
            self._refusals.pop(engine, None)
            return
        self.refused_total += 1
        self._until.pop(engine, None)
        self._refusals[engine] = grant.why

    async def _done(self, act: Coroutine[Any, Any, None], calls: int = 1) -> bool:
        """Return whether ``act``, of so many calls, was done; a failure is counted, and logged when it begins."""
        try:
            await asyncio.wait_for(act, calls * TIMEOUT_SECONDS)
        except Exception as error:
            problem = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            if not self.problem:
                known = isinstance(error, CoordinatorError | TimeoutError)
                logger.error("coordinator %s: %s", self.name, problem, exc_info=None if known else error)
            self.problem = problem or type(error).__name__
            self.failed_total += 1
            return False
        if self.problem:
            logger.info("coordinator %s: answers again", self.name)
        self.problem = ""
        return True
