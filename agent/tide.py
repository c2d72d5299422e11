"""The last half an hour of each engine's KV pool, for pictures: bounded, in memory, without any disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import floor
from typing import NamedTuple

from agent.state import AgentState, EngineState, Judgement

STEP_SECONDS = 5.0
POINTS = 360
SPAN_SECONDS = STEP_SECONDS * POINTS
MOST_ENGINES = 64


class Moment(NamedTuple):
    """One engine at ``at`` (Unix seconds). Shares of the pool, 0..1: ``held`` (what is orphaned included),
    ``orphaned``, ``cached_idle``. ``growth``: share of the pool a minute; ``acceleration``: that, a minute; ``score``:
    health, 0..100. None: not known.
    """

    at: float
    held: float | None
    orphaned: float | None
    cached_idle: float | None
    growth: float | None
    score: float | None
    waiting: int | None
    acceleration: float | None = None


def moment_from(row: Mapping[str, float | None]) -> Moment:
    """Return a moment that was sent by its fields' names; raises KeyError where it has no time."""
    at = row["at"]
    if at is None:
        raise KeyError("at")
    values = {name: row.get(name) for name in Moment._fields if name != "at"}
    return Moment(at, **values)  # type: ignore[arg-type]


class Tides:
    """Takes each judged state; of the states of one step it keeps the one in which most was held."""

    def __init__(self) -> None:
        self._engines: dict[str, deque[tuple[int, Moment]]] = {}

    def take(self, state: AgentState, judgement: Judgement) -> None:
        """Take the next state. Steps are of the monotonic clock: one that is set makes no hole."""
        step = floor(state.monotonic / STEP_SECONDS)
        for name, moment in _moments(state, judgement).items():
            kept = self._engines.get(name)
            if kept is None:
                if len(self._engines) >= MOST_ENGINES:
                    continue
                kept = self._engines[name] = deque(maxlen=POINTS)
            if not kept or kept[-1][0] != step:
                kept.append((step, moment))
            elif (moment.held or 0.0) >= (kept[-1][1].held or 0.0):
                kept[-1] = step, moment
        for name in [name for name, kept in self._engines.items() if kept[-1][0] < step - POINTS]:
            del self._engines[name]

    def of(self, engine: str) -> tuple[Moment, ...]:
        """Return the moments of ``engine``, the oldest first; none where nothing is known of it."""
        return tuple(moment for _, moment in self._engines.get(engine, ()))

    def all(self) -> dict[str, tuple[Moment, ...]]:
        """Return the moments of every engine by its label."""
        return {name: self.of(name) for name in self._engines}


def _moments(state: AgentState, judgement: Judgement) -> dict[str, Moment]:
    scores = {each.engine: each.value for each in judgement.scores if each.scope == "engine" and each.form == "kvtide"}
    hooked = {each.engine: each for each in state.engines}
    found = {}
    for each in judgement.signals.engines:
        growth = each.growth.per_minute if each.growth is not None else None
        held, orphaned, cached_idle = _shares(hooked.get(each.engine)) or (each.use_ratio, None, None)
        found[each.engine] = Moment(
            at=state.at,
            held=held,
            orphaned=orphaned,
            cached_idle=cached_idle,
            growth=growth,
            score=scores.get(each.engine),
            waiting=each.queue,
            acceleration=each.acceleration,
        )
    return found


def _shares(engine: EngineState | None) -> tuple[float | None, float | None, float | None] | None:
    pool = engine.pool if engine is not None else None
    if pool is None or not pool.capacity:
        return None
    parts = (pool.held, pool.orphaned, pool.cached_idle)
    held, orphaned, cached_idle = (None if part is None else part / pool.capacity for part in parts)
    return held, orphaned, cached_idle
