"""What the lever ``sleep`` needs around it. The engine core pulls it, with a lease like any other; before that the
engine is taken out of the load balancer and has to be idle, and it stays out for as long as it sleeps.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.actions.own import Forbidden
from agent.actions.types import LIVE_PHASES, Action, Plan
from agent.state import AgentState
from agent.supervisor.base import RefusedError
from agent.supervisor.drained import Drained

LEVER = "sleep"
WHY = "it is put to sleep"


class Sleep:
    """An :class:`agent.actions.own.Prepares`. Who sleeps is known by the journal and by what engines say that they have
    in force, so an agent that takes over goes on, and one that wakes by its lease is judged again.
    """

    def __init__(self, drained: Drained) -> None:
        self._drained = drained
        self._out: frozenset[str] = frozenset()

    async def prepare(self, plan: Plan, forbidden: Forbidden) -> str:
        """Take it out, and wait until nothing runs or waits; return why it may not sleep, empty where it may."""
        engine = plan.subject.engine
        self._out |= {engine}  # the next look lets it be judged again, unless it sleeps by then
        try:
            await self._drained.wait(engine, WHY, forbidden, queue=True)
        except RefusedError as error:
            return str(error)
        left = (self._drained.running(engine), self._drained.waiting(engine))
        if left == (0, 0):
            return ""
        running, waiting = ("an unknown number" if each is None else each for each in left)
        return f"{running} of its requests run and {waiting} wait: an engine with requests is not put to sleep"

    def look(self, state: AgentState, actions: Iterable[Action]) -> None:
        """Keep those out that sleep, or are about to; let the others be judged. ``actions``: the last ones."""
        held = {each.engine for each in state.engines if any(row.lever == LEVER for row in each.in_force)}
        held |= {each.plan.subject.engine for each in actions if _of_sleep(each)}
        for engine in held:
            self._drained.begin(engine, WHY)
        for engine in self._out - held:
            self._drained.end(engine)
        self._out = frozenset(held)


def _of_sleep(action: Action) -> bool:
    return action.plan.lever == LEVER and action.mode == "enforce" and action.phase in LIVE_PHASES
