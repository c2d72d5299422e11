"""Tenants of one engine: what each holds and asks for, against its quota and against what is usual for it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from agent.estimators import pair_slopes
from agent.signals.baseline import Learning
from agent.signals.counters import MINUTE, Kept, came, per_minute
from agent.signals.quantiles import between, quantile
from agent.signals.series import Due
from agent.signals.types import Reading, TenantSignals
from engine_hooks.detail import Detail, Histogram, TenantRow

LOOK_SECONDS = 5
EVERY_SECONDS = 10.0
SESSION_SECONDS = 1800.0
LEAST_SESSIONS = 10
LEAST_POINTS = 5
LEAST_SHARE = 0.02  # of the pool: less is not compared with
LEAST_REQUESTS = 1.0  # a minute
LEAST_SESSION_SECONDS = 5.0


class _Counts(NamedTuple):
    requests: int
    preempted: int
    share: float | None


class TenantsTracker:
    """Keeps a minute of each tenant's counters, and half an hour of its sessions."""

    def __init__(self, engine: str, learning: Learning) -> None:
        self._engine = engine
        self._learning = learning
        self._minute: Kept[dict[str, _Counts]] = Kept(EVERY_SECONDS, MINUTE)
        self._sessions: Kept[dict[str, Histogram]] = Kept(SESSION_SECONDS / 6, SESSION_SECONDS)
        self._bounds: tuple[float, ...] = ()
        self._instance: str | None = None
        self._growing: dict[str, float | None] = {}
        self._look, self._learns = Due(LOOK_SECONDS, zlib.crc32(engine.encode()) % LOOK_SECONDS), Due(MINUTE)
        self._signals: tuple[TenantSignals, ...] = ()

    def clear(self) -> None:
        """Forget all but what is usual."""
        self._minute.clear()
        self._sessions.clear()
        self._growing = {}
        self._signals = ()

    def take(self, now: float, reading: Reading, detail: Detail | None, calm: bool) -> tuple[TenantSignals, ...]:
        """Return the signals of each tenant, anew each five seconds; ``calm``: what is seen now may be learned."""
        if reading.instance != self._instance:
            self._instance = reading.instance
            self.clear()
        rows = detail.tenants if detail else None
        if rows is None:
            return ()
        if self._signals and not self._look.now(now):
            return self._signals
        whole = reading.capacity
        if self._minute.add(now, {row.tenant: _counts(row, whole) for row in rows}):
            self._growing = dict(self._slopes(row.tenant for row in rows))
            if self._sessions.due(now):
                lives = {row.tenant: row.session_lifetime_seconds for row in rows if row.session_lifetime_seconds}
                self._sessions.add(now, {tenant: self._slim(each) for tenant, each in lives.items()})
        ago, sessions = self._minute.ago(now, MINUTE), self._sessions.ago(now, SESSION_SECONDS)
        seconds, before = ago if ago is not None else (0.0, {})
        earlier = sessions[1] if sessions is not None else {}
        self._signals = tuple(
            self._of(row, whole, seconds, before.get(row.tenant), earlier.get(row.tenant)) for row in rows
        )
        if self._learns.now(now) and calm:
            self._learn(self._signals)
        return self._signals

    def _of(
        self, row: TenantRow, whole: int | None, seconds: float, before: _Counts | None, sessions: Histogram | None
    ) -> TenantSignals:
        name, learning = row.tenant, self._learning
        share = _share(row, whole)
        requests = preempted = None
        if before is not None and seconds >= 2 * EVERY_SECONDS:
            requests = per_minute(came(row.requests_total, before.requests), seconds)
            preempted = per_minute(came(row.preempted_total, before.preempted), seconds)
        ended = between(row.session_lifetime_seconds, sessions)
        session = quantile(*ended, 0.5, LEAST_SESSIONS) if ended else None
        used = row.held if row.held is not None else float(row.references)
        return TenantSignals(
            engine=self._engine,
            tenant=name,
            share_ratio=share,
            share_per_minute=self._growing.get(name),
            share_times=learning.times(f"share/{name}", share, LEAST_SHARE),
            early_share_times=learning.early_times(f"share/{name}", share, LEAST_SHARE),
            quota_ratio=used / row.quota_blocks if row.quota_blocks else None,
            requests_per_minute=requests,
            requests_times=learning.times(f"requests/{name}", requests, LEAST_REQUESTS),
            preempted_per_minute=preempted,
            waiting=row.waiting,
            session_median_seconds=session,
            session_times=learning.times(f"session/{name}", session, LEAST_SESSION_SECONDS),
        )

    def _slim(self, histogram: Histogram) -> Histogram:
        """Return it with the bounds that all of them have, once: each comes with its own, which are most of it."""
        if histogram.bounds != self._bounds:
            self._bounds = histogram.bounds
        return replace(histogram, bounds=self._bounds)

    def _slopes(self, tenants: Iterator[str]) -> Iterator[tuple[str, float | None]]:
        kept = self._minute.values()
        for tenant in tenants:
            times: list[float] = []
            shares: list[float] = []
            for at, counts in kept:
                count = counts.get(tenant)
                if count is not None and count.share is not None:
                    times.append(at)
                    shares.append(count.share)
            yield tenant, 60 * median(pair_slopes(times, shares)) if len(times) >= LEAST_POINTS else None

    def _learn(self, signals: tuple[TenantSignals, ...]) -> None:
        for each in signals:
            self._learning.learn(f"share/{each.tenant}", each.share_ratio)
            self._learning.learn(f"requests/{each.tenant}", each.requests_per_minute)
            self._learning.learn(f"session/{each.tenant}", each.session_median_seconds)


def _share(row: TenantRow, whole: int | None) -> float | None:
    return None if row.held is None or not whole else row.held / whole


def _counts(row: TenantRow, whole: int | None) -> _Counts:
    return _Counts(row.requests_total, row.preempted_total, _share(row, whole))
