"""States one after the other, as an agent sees them, and what is written of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.bundle.format import Header, Writer
from agent.state import AgentState, EngineState
from tests.unit.builders import make_engine, make_pool, make_state

AT, MONOTONIC = 1_700_000_000.0, 50_000.0
NOTHING: dict[str, Any] = {
    "sources": (),
    "processes": (),
    "failures": (),
    "failure_counts": (),
    "waterfalls": (),
    "judgement": None,
    "recorder": None,
    "judge_errors": {},
    **dict.fromkeys(("device", "host", "driver_calls", "scrape")),
}


def sound_engine(**changes: Any) -> EngineState:
    """A live engine with nothing wrong."""
    values: dict[str, Any] = {"detail": None, "members": (), "verdicts": (), "workers_expected": None}
    return make_engine(**values | {"frontends_expected": None, "pool": make_pool(orphaned=0, over_freed=0)} | changes)


def moment(second: float, *engines: EngineState, **changes: Any) -> AgentState:
    """Return the state of a node that has nothing but ``engines``, ``second`` seconds after the begin."""
    times = {"at": AT + second, "monotonic": MONOTONIC + second}
    return make_state(*(engines or (sound_engine(),)), **NOTHING | times | changes)


def leaking(seconds: int, since: int, until: int | None = None) -> Iterator[AgentState]:
    """Yield a state a second; four blocks are orphaned from ``since`` on, before ``until``."""
    for second in range(seconds):
        leaked = 4 if second >= since and (until is None or second < until) else 0
        yield moment(second, sound_engine(pool=make_pool(orphaned=leaked, over_freed=0)))


def written(path: Path, states: Iterator[AgentState], **header: Any) -> Path:
    """Write a bundle at ``path`` and return that."""
    with Writer(path, Header(**{"why": "a test"} | header)) as writer:
        for state in states:
            writer.state(state)
    return path
