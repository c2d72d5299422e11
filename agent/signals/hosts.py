"""Memory of engines' processes and cgroups, and when it reaches its limit."""

from __future__ import annotations

import math
from collections.abc import Iterator

from agent.estimators import Slope, exhaustion
from agent.signals.kept import KeptTrack, Restored
from agent.signals.series import Due
from agent.signals.trend import Trend
from agent.signals.types import Forecast, HostSignals, Rate
from agent.sources.host.state import CgroupState, ProcessState
from agent.state import AgentState

KEEP_SECONDS = 600.0
LOOK_SECONDS = 5.0
LOAD_SECONDS = 900.0  # over which running requests are averaged: memory follows them slowly
CGROUP, PROCESS = "cgroup", "process"

Key = tuple[str, str, str, int]


class HostsTracker:
    """Keeps what the signals of host memory need of the past; ``restored``: what an agent before this one had."""

    def __init__(self, restored: Restored | None = None) -> None:
        self._restored = restored
        self._trends: dict[Key, Trend] = {}
        self._look = Due(LOOK_SECONDS, 1.0)
        self._loads: dict[str, float] = {}
        self._followed: float | None = None
        self._signals: tuple[HostSignals, ...] = ()

    def take(self, now: float, state: AgentState) -> tuple[HostSignals, ...]:
        """Return the signals of each process and each cgroup of an engine, anew each five seconds."""
        host = state.host
        if host is None:
            return ()
        if not self._look.now(now):
            return self._signals
        self._follow(now, state)
        memory = host.memory or {}
        available, total = memory.get("available"), memory.get("total")
        processes = [self._process(now, each, available, total) for each in host.processes]
        cgroups = [self._cgroup(now, each, available) for each in host.cgroups]
        self._trends = {
            key: trend for key, trend in self._trends.items() if trend.last is None or now - trend.last < KEEP_SECONDS
        }
        self._signals = (*processes, *cgroups)
        return self._signals

    def _follow(self, now: float, state: AgentState) -> None:
        """Take how many requests run in each engine, over the last minutes: memory that goes up and down with them is
        no leak.
        """
        running = {each.engine: each.running for each in state.engines}
        for page in state.scrape.engines if state.scrape else ():
            running.setdefault(page.engine, page.running)
        elapsed = 0.0 if self._followed is None else now - self._followed
        share, self._followed = 1 - math.exp(-elapsed / LOAD_SECONDS), now
        loads: dict[str, float] = {}
        for engine, number in running.items():
            before = self._loads.get(engine)
            if number is not None:
                loads[engine] = number if before is None else before + share * (number - before)
            elif before is not None:
                loads[engine] = before
        self._loads = loads

    def _trend(self, key: Key) -> Trend:
        trend = self._trends.get(key)
        if trend is None:
            trend = self._trends[key] = Trend(
                "/".join(map(str, key)),
                seconds=20.0,
                least=0.005,
                least_ratio=0.05,
                settle_seconds=7200.0,
                restored=self._restored,
            )
        return trend

    def kept(self) -> Iterator[tuple[str, KeptTrack]]:
        """Yield what is to be kept over a restart of the agent, by name."""
        yield from filter(None, (trend.kept() for trend in self._trends.values()))

    def _process(self, now: float, each: ProcessState, available: int | None, total: int | None) -> HostSignals:
        size = each.resident_bytes
        trend = self._trend((each.engine, PROCESS, each.role, each.rank))
        trend.take(now, size, size, (each.pid, each.started_at), self._loads.get(each.engine))
        growth = trend.growth
        return HostSignals(
            engine=each.engine,
            role=each.role,
            rank=each.rank,
            what=PROCESS,
            bytes=size,
            age_seconds=trend.seconds(now),
            growth=growth,
            slow=trend.slow,
            limit_ratio=1 - available / total if available is not None and total else None,
            limit_seconds=_reached(size, available, growth, "if it goes on growing and nothing else on this host does"),
        )

    def _cgroup(self, now: float, each: CgroupState, available: int | None) -> HostSignals:
        # What nobody used lately is given back before the limit is reached.
        size = each.working_set_bytes if each.working_set_bytes is not None else each.current_bytes
        trend = self._trend((each.engine, CGROUP, each.role, each.rank))
        trend.take(now, size, size, (each.path, each.limit_bytes), self._loads.get(each.engine))
        used, limit = each.limit_current_bytes, each.limit_bytes
        left = available
        if limit is not None and used is not None:
            idle = max(0, each.current_bytes - size) if each.current_bytes is not None and size is not None else 0
            left = min(max(0, limit - used + idle), available if available is not None else limit)
        return HostSignals(
            engine=each.engine,
            role=each.role,
            rank=each.rank,
            what=CGROUP,
            bytes=size,
            age_seconds=trend.seconds(now),
            growth=trend.growth,
            slow=trend.slow,
            limit_bytes=limit,
            limit_ratio=used / limit if used is not None and limit else None,
            limit_seconds=_reached(size, left, trend.growth, "if it goes on growing as in the last ten minutes"),
        )


def _reached(size: int | None, left: int | None, growth: Rate | None, condition: str) -> Forecast | None:
    """Return when ``left`` bytes more are used; None unless ``size`` surely grows."""
    if growth is None or not size or left is None or left <= 0:
        return None
    slope = Slope(*(each * size / 60 for each in (growth.per_minute, growth.low, growth.high)))
    span = exhaustion(0.0, float(left), slope)
    return None if span is None else Forecast(seconds=span.value, low=span.low, high=span.high, condition=condition)
