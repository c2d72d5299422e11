"""What memory did to the work in a history: refusals, preemptions, stalls, failed allocations, kills."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from agent.backtest.result import Harm
from agent.signals.reading import of_hooks, of_page
from agent.signals.types import Reading
from agent.state import AgentState, Judgement
from agent.waiting import STALLED_SECONDS
from engine_hooks.allocator import OOM

MERGE_SECONDS = 60.0  # harm of one sort that comes again within this time is one stretch of it
MAX_STRETCHES = 10_000
_Key = tuple[str, str]  # the engine and what


class HarmLog:
    """Of one history; says what harm came first after a moment. Bounded: the oldest stretches stay."""

    def __init__(self) -> None:
        self._stretches: dict[_Key, list[list[float]]] = {}
        self._count = 0
        self._before: dict[_Key, tuple[str, int]] = {}
        self._at: float | None = None

    def take(self, state: AgentState, judgement: Judgement, at: float) -> None:
        """Take the next state, of ``at`` by the history's own clock, with what was made of it."""
        shift = at - state.at
        for engine, what, began in self._events(state, judgement):
            self._add((engine, what), began + shift, at)
        self._at = state.at

    def first(self, engine: str, since: float, until: float | None) -> Harm | None:
        """Return the first harm to ``engine`` (empty: to any) from ``since`` on, ``until`` at the latest."""
        best: Harm | None = None
        for (whose, what), stretches in self._stretches.items():
            if engine and whose not in (engine, ""):
                continue
            # Stretches follow one another: the first that has not ended by then is the first there is.
            place = bisect_left(stretches, since, key=lambda each: each[1])
            if place == len(stretches):
                continue
            at = max(stretches[place][0], since)
            if (until is None or at <= until) and (best is None or at < best.at):
                best = Harm(what=what, at=at, engine=whose)
        return best

    def counts(self) -> dict[str, int]:
        """Return how many stretches of each sort of harm there were."""
        counts: Counter[str] = Counter()
        for (_, what), stretches in self._stretches.items():
            counts[what] += len(stretches)
        return dict(sorted(counts.items()))

    def _add(self, key: _Key, began: float, at: float) -> None:
        stretches = self._stretches.get(key)
        if stretches and began - stretches[-1][1] <= MERGE_SECONDS:
            stretches[-1][1] = max(stretches[-1][1], at)
        elif self._count < MAX_STRETCHES:
            self._count += 1
            self._stretches.setdefault(key, []).append([began, at])

    def _events(self, state: AgentState, judgement: Judgement) -> Iterator[tuple[str, str, float]]:
        """Yield the engine, what, and when it began."""
        readings = [of_hooks(engine) for engine in state.engines]
        readings += [of_page(page) for page in (state.scrape.engines if state.scrape else ())]
        for reading in readings:
            if reading is not None:
                yield from self._lost(reading, state.at)
        still = {each.engine: each.still_seconds for each in judgement.signals.engines if each.still_seconds}
        for engine in state.engines:
            if engine.detail and engine.detail.waiting and engine.detail.waiting.stalled_seconds:
                still[engine.engine] = engine.detail.waiting.stalled_seconds
        for name, seconds in still.items():
            if seconds >= STALLED_SECONDS:
                yield name, "stalled", state.at - seconds
        yield from self._failed(state)

    def _lost(self, reading: Reading, at: float) -> Iterator[tuple[str, str, float]]:
        for what, total in (("refused", reading.refused_total), ("preempted", reading.preempted_total)):
            # Hooks and the page of one engine count for themselves.
            key = (reading.engine, what if reading.hooked else f"{what} (page)")
            if total is not None and self._grew(key, reading.instance, total, new=False):
                yield reading.engine, what, at

    def _failed(self, state: AgentState) -> Iterator[tuple[str, str, float]]:
        for count in state.failure_counts:
            # A series that was not there before has begun at zero, unless nothing was.
            key = (f"{count.engine}/{count.process}/{count.cause}", "oom")
            if count.kind == OOM and self._grew(key, "", count.count, new=self._at is not None):
                yield count.engine, "oom", state.at
        for failure in state.failures:
            if failure.event.kind == OOM and self._at is not None and self._at < failure.event.at <= state.at:
                yield failure.engine, "oom", failure.event.at
        for engine, kills in (state.host.kills_total if state.host else {}).items():
            if self._grew((engine, "killed"), "", kills, new=self._at is not None):
                yield engine, "killed", state.at

    def _grew(self, key: _Key, instance: str, total: int, *, new: bool) -> bool:
        """Keep a counter; say whether it has grown. ``new``: one that was not there before has begun at zero."""
        before, self._before[key] = self._before.get(key), (instance, total)
        if before is None:
            return new and total > 0
        return before[0] == instance and total > before[1]
