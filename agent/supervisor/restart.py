"""The lever ``restart``: drained first, then by the supervisor, then watched until a successor serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from agent.actions.types import Outcome, Plan
from agent.state import AgentState, EngineState
from agent.supervisor.base import RefusedError, Supervisor, SupervisorError, Target

LOOK_SECONDS = 0.25
ASK_SECONDS = 5.0  # between two questions to the supervisor whether a successor serves
SETTLE_SECONDS = 2.0  # a load balancer obeys by then, and what it had sent has arrived


class Drain(Protocol):
    """The weight at the load balancer."""

    def drain(self, engine: str, why: str) -> bool:
        """Take an engine out; return whether its weight can be moved at all."""

    def undrain(self, engine: str) -> None:
        """Let it be judged again."""

    def drain_refused(self, engine: str) -> str:
        """Return why the fleet's coordinator does not let it go below 50 %; empty while it does, or is being asked."""


class Restart:
    """``supervisors`` by engine; ``look`` gives the state that was looked at last. ``clock``: monotonic seconds."""

    def __init__(
        self,
        supervisors: Mapping[str, Supervisor],
        drain: Drain,
        look: Callable[[], AgentState | None],
        *,
        drain_seconds: float,
        start_seconds: float,
        settle_seconds: float = SETTLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supervisors, self._drain, self._look, self._clock = supervisors, drain, look, clock
        self._drain_seconds, self._start_seconds, self._settle = drain_seconds, start_seconds, settle_seconds

    def why_not(self, engine: str) -> str:
        """Return why it can't be pulled on an engine, empty where it may be tried."""
        if engine in self._supervisors:
            return ""
        return f"nobody is named who restarts {engine} (supervisor.engines)"

    async def would(self, plan: Plan) -> Outcome:
        """Ask the supervisor whether it could, and change nothing."""
        try:
            target = self._target(plan)
            await self._supervisors[target.engine].probe(target)
        except RefusedError as error:
            return _outcome(plan, "unsupported", str(error))
        except SupervisorError as error:
            return _outcome(plan, "failed", str(error))
        return _outcome(plan, "would", f"by {self._supervisors[target.engine].name}, {_busy(self._ranks(target))}")

    async def apply(self, plan: Plan) -> Outcome:
        """Do it. ``done`` only where a successor is seen to serve."""
        began = self._clock()
        try:
            target = self._target(plan)
            supervisor = self._supervisors[target.engine]
            await supervisor.probe(target)
            try:
                drained = await self._drained(target)
                self._target(plan)
                left, old = self._running(target), frozenset(each.instance for each in self._ranks(target))
                await supervisor.restart(target)
                await self._succeeded(supervisor, target, old)
            finally:
                self._drain.undrain(target.engine)
        except RefusedError as error:
            return _outcome(plan, "conflict", str(error))
        except SupervisorError as error:
            return _outcome(plan, "failed", str(error))
        seconds = self._clock() - began
        return _outcome(plan, "done", f"by {supervisor.name}, {drained}", seconds=round(seconds, 1), cut_off=left)

    async def close(self) -> None:
        """End the supervisors' connections."""
        for supervisor in self._supervisors.values():
            await supervisor.close()

    # -- steps ------------------------------------------------------------------------------------------------------

    async def _drained(self, target: Target) -> str:
        """Wait until nothing runs, for a time; return how that went."""
        moved = self._drain.drain(target.engine, "it is about to be restarted")
        began, deadline = self._clock(), self._clock() + self._drain_seconds
        how = "drained" if moved else "its weight is not moved (balancer.mode)"
        while (now := self._clock()) < deadline:
            if moved and (why := self._drain.drain_refused(target.engine)):
                raise RefusedError(f"it may not be taken out of the load balancer: {why}")
            if self._running(target) == 0 and (not moved or now - began >= self._settle):
                return how
            await asyncio.sleep(LOOK_SECONDS)
        return f"{how}, {_busy(self._ranks(target))} after {self._drain_seconds:g} s"

    async def _succeeded(self, supervisor: Supervisor, target: Target, old: frozenset[str]) -> None:
        deadline, ask, problem = self._clock() + self._start_seconds, self._clock() + ASK_SECONDS, ""
        while (now := self._clock()) < deadline:
            ranks = self._ranks(target)
            if ranks and all(each.instance not in old and each.phase == "live" for each in ranks):
                return
            if now >= ask:
                ask = now + ASK_SECONDS
                try:
                    if await supervisor.succeeded(target):
                        return
                    problem = ""
                except SupervisorError as error:
                    problem = f" ({error})"
            await asyncio.sleep(LOOK_SECONDS)
        raise SupervisorError(f"no successor serves {self._start_seconds:g} s after the restart{problem}")

    # -- what is seen -----------------------------------------------------------------------------------------------

    def _target(self, plan: Plan) -> Target:
        """Return the life of the engine that the plan is about; raises :class:`RefusedError` where it has ended."""
        engine = next((each for each in self._ranks_of(plan.subject.engine) if each.instance in plan.targets), None)
        if engine is None:
            raise RefusedError("the process that was meant has ended meanwhile: a successor is not restarted")
        return Target(
            engine=engine.engine,
            instance=engine.instance,
            host=engine.host,
            pid=engine.pid,
            started_at=engine.started_at,
        )

    def _ranks(self, target: Target) -> list[EngineState]:
        return self._ranks_of(target.engine)

    def _ranks_of(self, name: str) -> list[EngineState]:
        """Return the engine and the data-parallel ranks that are restarted with it."""
        state = self._look()
        engines = state.engines if state is not None else ()
        own = next((each for each in engines if each.engine == name), None)
        if own is None:
            return []
        return [each for each in engines if each.engine_id == own.engine_id and each.host == own.host]

    def _running(self, target: Target) -> int | None:
        """Return how many requests run; None where one of its ranks does not say."""
        counts = [each.running for each in self._ranks(target)]
        return sum(each for each in counts if each is not None) if counts and None not in counts else None


def _busy(ranks: list[EngineState]) -> str:
    counts = [each.running for each in ranks]
    if None in counts or not counts:
        return "with an unknown number running"
    return f"with {sum(each or 0 for each in counts)} running"


def _outcome(
    plan: Plan, code: str, detail: str, *, seconds: float | None = None, cut_off: int | None = None
) -> Outcome:
    named = {"seconds": seconds, "requests": cut_off}
    effect: dict[str, int | float] = {name: value for name, value in named.items() if value is not None}
    return Outcome(target=plan.targets[0] if plan.targets else "", code=code, detail=detail, effect=effect)
