"""What one side of a roll-out shows: verdicts, failures for want of memory, errors, latency. Counters of any life."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from agent.backtest.result import Backtest, Episode
from agent.backtest.run import Feed, Named, run
from agent.policy.types import Policy
from agent.signals.quantiles import between, quantile
from agent.signals.reading import readings_of
from agent.state import AgentState, Judgement
from engine_hooks.detail import Histogram

P99 = 0.99
OUT_OF_MEMORY = ("oom", "killed")  # sorts of harm


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One side. ``watched_seconds``: time without gaps, over all its histories. ``ended``: requests that came to an
    end, ``failed`` of them by an error; None where no engine tells. ``p99_seconds``: of requests' time in the engine;
    None where it can't be told. ``episodes``: verdicts that somebody had to know of. ``out_of_memory``: how often
    memory failed.
    """

    watched_seconds: float
    engines: int
    ended: int | None
    failed: int | None
    p99_seconds: float | None
    p99_requests: int
    out_of_memory: int
    episodes: tuple[Episode, ...]
    remarks: tuple[str, ...] = ()

    @property
    def failed_ratio(self) -> float | None:
        """Share of requests that ended by an error; None where none has ended, or nobody tells."""
        return self.failed / self.ended if self.ended and self.failed is not None else None


def gather(policy: Policy, feeds: Iterable[Feed]) -> Evidence:
    """Return what ``feeds`` show, judged by ``policy``."""
    counting = _Counting()
    result = run([Named("canary", policy)], feeds, look=counting)
    return counting.evidence(result)


class _Counting:
    """Adds up what counters grow by, for each history and life of an engine; the first value of each is no growth."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._histograms: dict[tuple[str, str, str], Histogram] = {}
        self._told = False
        self._ended = self._failed = 0
        self._seconds: dict[tuple[float, ...], Counter[int]] = {}

    def __call__(self, name: str, state: AgentState, judgement: Judgement, at: float) -> None:
        for reading, detail in readings_of(state, lambda *_: None):
            key = name, reading.engine, reading.instance
            if reading.ended_total is not None and reading.failed_total is not None:
                self._told = True
                now = reading.ended_total, reading.failed_total
                before = self._last.get(key, now)
                self._last[key] = now
                self._ended += max(0, now[0] - before[0])
                self._failed += max(0, now[1] - before[1])
            if detail is not None and detail.work is not None:
                self._took(key, detail.work.request_seconds)

    def _took(self, key: tuple[str, str, str], now: Histogram) -> None:
        grown = between(now, self._histograms.get(key))
        self._histograms[key] = now
        if grown is not None:
            bounds, counts = grown
            self._seconds.setdefault(bounds, Counter()).update(dict(enumerate(counts)))

    def evidence(self, result: Backtest) -> Evidence:
        episodes = [each for history in result.histories for each in history.outcomes[0].episodes]
        bounds, counts = max(
            self._seconds.items(), key=lambda each: each[1].total(), default=((), Counter[int]())
        )  # all engines of one version have the same buckets
        spread = [counts[place] for place in range(len(bounds) + 1)]
        return Evidence(
            watched_seconds=result.watched_seconds,
            engines=len({(each.name, engine) for each in result.histories for engine in each.engines}),
            ended=self._ended if self._told else None,
            failed=self._failed if self._told else None,
            p99_seconds=quantile(bounds, spread, P99) if bounds else None,
            p99_requests=sum(spread),
            out_of_memory=sum(each.harm.get(what, 0) for each in result.histories for what in OUT_OF_MEMORY),
            episodes=tuple(each for each in episodes if each.tier != "note"),
            remarks=result.remarks,
        )
