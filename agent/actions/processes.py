"""The processes of an engine that an order may go to, and what each of them says that it can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agent.actions.measure import engine_of
from agent.actions.own import SUPERVISED
from agent.actions.types import Action
from agent.state import AgentState, EngineState
from engine_hooks.levers.orders import LeaseRow, LeverRow
from engine_hooks.members import FRONTEND

ADMISSION = "admission"
# In front of all data-parallel ranks at once, or of no use on one rank alone: ranks wait for each other.
OF_ALL_RANKS = frozenset({ADMISSION, "pause", "reset_prefix", "sleep"})


class Process(NamedTuple):
    """``role``: core, or the member's. ``up``: it reports. ``age_seconds``: since it was last heard."""

    instance: str
    role: str
    rank: int
    up: bool
    age_seconds: float | None
    levers: tuple[LeverRow, ...]
    in_force: tuple[LeaseRow, ...]

    def row(self, lever: str) -> LeverRow | None:
        """What it says of a lever; None where it has never heard of it."""
        return next((row for row in self.levers if row.lever == lever), None)


def processes_of(engine: EngineState) -> Iterator[Process]:
    """Yield an engine core and its members."""
    live = engine.phase == "live"
    yield Process(engine.instance, "core", engine.rank, live, engine.report_age_seconds, engine.levers, engine.in_force)
    for member in engine.members:
        age = member.heard_age_seconds
        yield Process(member.instance, member.role, member.rank, member.up, age, member.levers, member.in_force)


def all_processes(state: AgentState) -> dict[str, Process]:
    """Return every process that orders can be addressed to, by its instance."""
    return {each.instance: each for engine in state.engines for each in processes_of(engine)}


def targets_of(state: AgentState, engine: EngineState, lever: str) -> tuple[str, ...]:
    """Return the processes that must all pull ``lever``: those of this engine that have it; of one that a supervisor
    pulls, the life of the engine that is meant.

    Of its front ends all, where one has it: a quota that only some of them know is none. Empty: none has it.
    """
    if lever in SUPERVISED:
        return (engine.instance,)
    ranks = [engine]
    if lever in OF_ALL_RANKS:
        ranks = [each for each in state.engines if each.engine_id == engine.engine_id and each.host == engine.host]
    found = [each for rank in ranks for each in processes_of(rank)]
    having = {each.role for each in found if each.row(lever) is not None}
    if not having:
        return ()
    if lever == ADMISSION and FRONTEND not in having:
        return ()  # the core only says that nobody has it
    if FRONTEND in having:
        return tuple(each.instance for each in found if each.role == FRONTEND and each.up)
    return tuple(each.instance for each in found if each.row(lever) is not None)


def newcomers(state: AgentState, action: Action) -> tuple[str, ...]:
    """Return the processes that an action is for as well, and that have come since it was done.

    None while one of its own is away: either it comes back, or the action ends.
    """
    plan, known = action.plan, all_processes(state)
    engine = engine_of(state, plan.subject)
    if engine is None or not plan.targets or plan.lever in SUPERVISED:
        return ()
    if not all(target in known and known[target].up for target in plan.targets):
        return ()
    return tuple(each for each in targets_of(state, engine, plan.lever) if each not in plan.targets and known[each].up)
