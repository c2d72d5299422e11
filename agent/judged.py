"""Puts a judgement beside the state that it is about."""

from __future__ import annotations

from msgspec.structs import replace

from agent.state import AgentState, EngineState, Judgement, Verdict
from agent.verdicts.endings import UNKNOWN


def judged(state: AgentState, judgement: Judgement | None) -> AgentState:
    """Return ``state`` with ``judgement``; a live engine gets the verdicts on it and its tenants for its own.

    The judgement may be of a second ago: what it says of a process that has been replaced since is not its successor's.
    """
    if judgement is None:
        return state
    known = {each.engine: each.instance for each in judgement.signals.engines if each.hooked}
    return replace(
        state,
        judgement=judgement,
        engines=tuple(
            _with(engine, judgement) if known.get(engine.engine, engine.instance) == engine.instance else engine
            for engine in state.engines
        ),
    )


def _with(engine: EngineState, judgement: Judgement) -> EngineState:
    own = tuple(each for each in judgement.verdicts if _concerns(each, engine)) if engine.phase == "live" else ()
    return replace(engine, verdicts=own) if own else engine


def _concerns(verdict: Verdict, engine: EngineState) -> bool:
    subject = verdict.subject
    return (
        subject.scope in ("engine", "tenant")
        and subject.engine == engine.engine
        and verdict.ending not in UNKNOWN
        and not verdict.held
    )
