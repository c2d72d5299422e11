"""The last half an hour of each engine's KV pool, for pictures: bounded, in memory, without any disk."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from math import floor, isnan, nan
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


FIELDS = len(Moment._fields)


def moment_from(row: Mapping[str, float | None]) -> Moment:
    """Return a moment that was sent by its fields' names; raises KeyError where it has no time."""
    at = row["at"]
    if at is None:
        raise KeyError("at")
    values = {name: row.get(name) for name in Moment._fields if name != "at"}
    return Moment(at, **values)  # type: ignore[arg-type]


class _Ring:
    """The last moments of one engine: plain numbers in one piece of 23 kB that is there from the first moment on, so
    that an agent is as large after a minute as it is after half an hour. Objects took six times as much.
    """

    __slots__ = ("_held", "_next", "_values", "count", "step")

    def __init__(self) -> None:
        self._values = array("d", bytes(8 * FIELDS * POINTS))
        self._next = 0  # where the next moment goes
        self._held = 0.0  # of the last one
        self.count = 0
        self.step = -1  # of the last one

    def take(self, step: int, moment: Moment) -> None:
        """Add a moment; of those of one step the last stays in which most was held."""
        held = moment.held or 0.0
        if self.count and step == self.step:
            if held < self._held:
                return
        else:
            self._next = (self._next + 1) % POINTS
            self.count = min(self.count + 1, POINTS)
        start = (self._next - 1) % POINTS * FIELDS
        self.step, self._held = step, held
        self._values[start : start + FIELDS] = array("d", [nan if value is None else value for value in moment])

    def moments(self) -> Iterator[Moment]:
        """Yield them, the oldest first."""
        for number in range(self._next - self.count, self._next):
            start = number % POINTS * FIELDS
            at, *rest = self._values[start : start + FIELDS]
            held, orphaned, cached_idle, growth, score, waiting, acceleration = (
                None if isnan(value) else value for value in rest
            )
            queue = None if waiting is None else int(waiting)
            yield Moment(at, held, orphaned, cached_idle, growth, score, queue, acceleration)


class Tides:
    """Takes each judged state; of the states of one step it keeps the one in which most was held."""

    def __init__(self) -> None:
        self._engines: dict[str, _Ring] = {}

    def take(self, state: AgentState, judgement: Judgement) -> None:
        """Take the next state. Steps are of the monotonic clock: one that is set makes no hole."""
        step = floor(state.monotonic / STEP_SECONDS)
        for name, moment in _moments(state, judgement).items():
            ring = self._engines.get(name)
            if ring is None:
                if len(self._engines) >= MOST_ENGINES:
                    continue
                ring = self._engines[name] = _Ring()
            ring.take(step, moment)
        for name in [name for name, ring in self._engines.items() if ring.step < step - POINTS]:
            del self._engines[name]

    def of(self, engine: str) -> tuple[Moment, ...]:
        """Return the moments of ``engine``, the oldest first; none where nothing is known of it."""
        ring = self._engines.get(engine)
        return () if ring is None else tuple(ring.moments())

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
