"""The lever ``restart``: drained first, then by the supervisor, then watched until a successor serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from agent.actions.own import Forbidden
from agent.actions.types import Outcome, Plan
from agent.supervisor.base import RefusedError, Supervisor, SupervisorError, Target
from agent.supervisor.drained import LOOK_SECONDS, Drained

ASK_SECONDS = 5.0  # between two questions to the supervisor whether a successor serves
WHY = "it is about to be restarted"


class Restart:
    """``supervisors`` by engine; ``clock``: monotonic seconds."""

    def __init__(
        self,
        supervisors: Mapping[str, Supervisor],
        drained: Drained,
        *,
        start_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supervisors, self._drained, self._clock = supervisors, drained, clock
        self._start_seconds = start_seconds

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
        return _outcome(
            plan, "would", f"by {self._supervisors[target.engine].name}, {self._drained.told(target.engine)}"
        )

    async def apply(self, plan: Plan, forbidden: Forbidden) -> Outcome:
        """Do it. ``done`` only where a successor is seen to serve."""
        began = self._clock()
        try:
            target = self._target(plan)
            supervisor = self._supervisors[target.engine]
            await supervisor.probe(target)
            try:
                drained = await self._drained.wait(target.engine, WHY, forbidden)
                self._target(plan)
                if why := forbidden():
                    raise RefusedError(why)
                left = self._drained.running(target.engine)
                old = frozenset(each.instance for each in self._drained.ranks(target.engine))
                await supervisor.restart(target)
                await self._succeeded(supervisor, target, old)
            finally:
                self._drained.end(target.engine)
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

    async def _succeeded(self, supervisor: Supervisor, target: Target, old: frozenset[str]) -> None:
        deadline, ask, problem = self._clock() + self._start_seconds, self._clock() + ASK_SECONDS, ""
        while (now := self._clock()) < deadline:
            ranks = self._drained.ranks(target.engine)
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
        ranks = self._drained.ranks(plan.subject.engine)
        engine = next((each for each in ranks if each.instance in plan.targets), None)
        if engine is None:
            raise RefusedError("the process that was meant has ended meanwhile: a successor is not restarted")
        return Target(
            engine=engine.engine,
            instance=engine.instance,
            host=engine.host,
            pid=engine.pid,
            started_at=engine.started_at,
        )


def _outcome(
    plan: Plan, code: str, detail: str, *, seconds: float | None = None, cut_off: int | None = None
) -> Outcome:
    named = {"seconds": seconds, "requests": cut_off}
    effect: dict[str, int | float] = {name: value for name, value in named.items() if value is not None}
    return Outcome(target=plan.targets[0] if plan.targets else "", code=code, detail=detail, effect=effect)
