"""A long history, period by period: how full, how healthy, and what pressure cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.signals.types import EngineSignals
from agent.state import AgentState, EngineState, Judgement
from engine_hooks.allocator import OOM

HOUR, DAY = 3600.0, 86_400.0
LONGEST_STEP = 300.0  # seconds between two states; over a longer pause nothing is known
MOST_PERIODS = 1000


@dataclass(slots=True)
class Period:
    """``at``: its begin, Unix seconds. ``seconds``: engines' time that was watched. ``use``: time-weighted sum of each
    engine's share of its pool in use, over ``use_seconds``; ``most_use`` its peak. ``least_score``: 0..100, None where
    there was none. ``rebuild_seconds``: engines' time spent on prefill that had been computed before.
    ``shed``: requests that were refused at the front end. ``ooms``: failed allocations and kills.
    ``down_seconds``: engines' time from such a failure until they made tokens again.
    """

    at: float
    seconds: float = 0.0
    use: float = 0.0
    use_seconds: float = 0.0
    most_use: float | None = None
    least_score: float | None = None
    rebuild_seconds: float = 0.0
    shed: int = 0
    ooms: int = 0
    down_seconds: float = 0.0

    @property
    def mean_use(self) -> float | None:
        """Mean share of the pools in use."""
        return self.use / self.use_seconds if self.use_seconds else None


@dataclass(slots=True)
class _Seen:
    """Of one history: the state before, counters by name with the life that they belong to, engines that are down."""

    at: float | None = None
    counters: dict[str, tuple[str, float]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)


class Periods:
    """Takes the states of any number of histories. ``length``: of a period, in seconds."""

    def __init__(self, length: float) -> None:
        self.length = length
        self._periods: dict[int, Period] = {}
        self._seen: dict[str, _Seen] = {}
        self.left_out = 0

    def __call__(self, name: str, state: AgentState, judgement: Judgement, at: float) -> None:
        """Take the next state of the history ``name``, of ``at``."""
        number = int(at // self.length)
        if number not in self._periods:
            if len(self._periods) >= MOST_PERIODS:
                self.left_out += 1
                return
            self._periods[number] = Period(number * self.length)
        period, seen = self._periods[number], self._seen.setdefault(name, _Seen())
        step = 0.0 if seen.at is None else min(max(at - seen.at, 0.0), LONGEST_STEP)
        known = seen.at is not None
        seen.at = at
        signals = {each.engine: each for each in judgement.signals.engines}
        self._fill(period, step, judgement)
        self._cost(period, seen, state, known=known)
        self._down(period, seen, state, signals, step)

    def all(self) -> list[Period]:
        """Return the periods in their order; those that nothing is known of are not there."""
        return [self._periods[number] for number in sorted(self._periods)]

    def _fill(self, period: Period, step: float, judgement: Judgement) -> None:
        for each in judgement.signals.engines:
            period.seconds += step
            if each.use_ratio is not None:
                period.use += step * each.use_ratio
                period.use_seconds += step
                period.most_use = max(period.most_use or 0.0, each.use_ratio)
        scores = [each.value for each in judgement.scores if each.scope == "engine" and each.form == "kvtide"]
        if scores:
            period.least_score = min(scores) if period.least_score is None else min(period.least_score, *scores)

    def _cost(self, period: Period, seen: _Seen, state: AgentState, *, known: bool) -> None:
        """Add what counters have grown by. One that was not there before has begun at zero, unless nothing was."""
        for engine in state.engines:
            work = engine.detail.work if engine.detail is not None else None
            if work is not None:
                name = f"rebuild/{engine.engine}"
                period.rebuild_seconds += _grown(seen, name, engine.instance, work.rebuild_seconds_total, known=known)
            for rank, instance, shed in _shed(engine):
                period.shed += round(_grown(seen, f"shed/{engine.engine}/{rank}", instance, shed, known=known))
        for engine_name, life, count in _failures(state):
            new = round(_grown(seen, f"oom/{engine_name}/{life}", "", count, known=known))
            period.ooms += new
            if new and engine_name:
                seen.down.add(engine_name)

    def _down(
        self, period: Period, seen: _Seen, state: AgentState, signals: dict[str, EngineSignals], step: float
    ) -> None:
        live = {engine.engine for engine in state.engines if engine.phase == "live"}
        for name in list(seen.down):
            own = signals.get(name)
            serves = own is not None and (own.tokens_per_second or 0.0) > 0.0
            idle = own is not None and name in live and not own.still_seconds and not own.queue
            if serves or idle:
                seen.down.discard(name)
            else:
                period.down_seconds += step


def _shed(engine: EngineState) -> Iterator[tuple[int, str, float]]:
    """Yield each API server's number, its life, and how many requests it has refused."""
    for member in engine.members:
        if member.frontend is not None:
            refused = sum(sum(row.reasons.values()) for row in member.frontend.refused)
            yield member.rank, member.instance, float(refused)


def _failures(state: AgentState) -> Iterator[tuple[str, str, float]]:
    """Yield the engine, what of it, and how often it has failed for want of memory."""
    for count in state.failure_counts:
        if count.kind == OOM:
            yield count.engine, f"{count.process}/{count.cause}", float(count.count)
    for engine, kills in (state.host.kills_total if state.host else {}).items():
        yield engine, "killed", float(kills)


def _grown(seen: _Seen, name: str, life: str, total: float, *, known: bool) -> float:
    before, seen.counters[name] = seen.counters.get(name), (life, total)
    if before is None:
        return total if known else 0.0
    if before[0] != life or total < before[1]:
        return total  # begun anew
    return total - before[1]
