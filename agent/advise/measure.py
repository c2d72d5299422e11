"""What one run of a trial shows."""

from __future__ import annotations

import msgspec

from agent.signals.quantiles import between, quantile
from agent.simulate.process import Simulator
from agent.simulate.run import check
from agent.simulate.states import States
from agent.state import AgentState
from engine_hooks.detail import Histogram
from engine_hooks.simulator.clock import MONOTONIC_START
from engine_hooks.simulator.spec import Spec

P99 = 0.99
WARM_UP = 0.2  # of the run, of which nothing is counted


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """``ended``: requests that came to their end. ``waste_ratio``: token slots of held blocks that were not filled.
    ``preempted_ratio``: preemptions for each request that ended. ``rebuild_ratio``: prefill that had been computed
    before. ``p99_seconds``: of requests' time from their first try to be admitted to their end, in virtual time: a
    proxy, to be compared only. ``use_ratio``: mean share of the pool that was held. None: it can't be told.
    """

    ended: int
    waste_ratio: float | None
    preempted_ratio: float | None
    rebuild_ratio: float | None
    p99_seconds: float | None
    use_ratio: float | None


def measure(spec: Spec, simulator: Simulator) -> Measured:
    """Run ``spec`` and return what it shows after its warm-up. Raises what :meth:`Simulator.run` raises."""
    check(spec)
    states, seen = States(spec.start), Seen(MONOTONIC_START + WARM_UP * spec.seconds)
    for item in simulator.run(spec):
        for state in states.take(item):
            seen.take(state)
    for state in states.end(MONOTONIC_START + spec.seconds):
        seen.take(state)
    return seen.measured()


class Seen:
    """Takes the states of one run; those before ``since`` (monotonic seconds) are where counting begins."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._first: AgentState | None = None
        self._last: AgentState | None = None
        self._states = 0
        self._waste = self._use = 0.0
        self._wasted = 0

    def take(self, state: AgentState) -> None:
        """Take the next state."""
        if not state.engines or state.engines[0].detail is None:
            return
        if state.monotonic < self._since:
            self._first = state
            return
        self._first = self._first or state
        self._last = state
        pool, work = state.engines[0].pool, state.engines[0].detail.work
        if pool is None:
            return
        self._states += 1
        self._use += pool.held / pool.capacity
        if work is not None and work.tail_slots is not None and pool.held and pool.block_tokens:
            self._waste += work.tail_slots / (pool.held * pool.block_tokens)
            self._wasted += 1

    def measured(self) -> Measured:
        """Return what was seen."""
        if self._first is None or self._last is None:
            return Measured(
                ended=0, waste_ratio=None, preempted_ratio=None, rebuild_ratio=None, p99_seconds=None, use_ratio=None
            )
        first, last = _totals(self._first), _totals(self._last)
        grown = {name: last[name] - first[name] for name in last}
        ended = int(grown["ended"])
        return Measured(
            ended=ended,
            waste_ratio=self._waste / self._wasted if self._wasted else None,
            preempted_ratio=grown["preempted"] / ended if ended else None,
            rebuild_ratio=grown["rebuilt"] / grown["prefill"] if grown["prefill"] else None,
            p99_seconds=_p99(self._first, self._last),
            use_ratio=self._use / self._states if self._states else None,
        )


def _totals(state: AgentState) -> dict[str, float]:
    detail = state.engines[0].detail
    assert detail is not None  # noqa: S101 - no other is taken
    work, allocation = detail.work, detail.allocation
    rebuilt = (work.rebuilt_preempted_total or 0) + (work.rebuilt_evicted_total or 0) if work else 0
    return {
        "ended": sum(sum(row.ended_total.values()) for row in detail.tenants or ()),
        "preempted": (allocation.preempted_total or 0) if allocation else 0,
        "rebuilt": rebuilt,
        "prefill": work.prefill_tokens_total if work else 0,
    }


def _p99(first: AgentState, last: AgentState) -> float | None:
    """Return the P99 of time in the engine and of time that was waited for memory, added: an upper bound of both."""
    before, now = first.engines[0].detail, last.engines[0].detail
    if before is None or now is None or before.work is None or now.work is None:
        return None
    took = _quantile(now.work.request_seconds, before.work.request_seconds)
    if took is None:
        return None
    waited = None
    if before.allocation is not None and now.allocation is not None:
        waited = _quantile(now.allocation.wait_seconds, before.allocation.wait_seconds)
    return took + (waited or 0.0)


def _quantile(now: Histogram, before: Histogram) -> float | None:
    grown = between(now, before)
    return quantile(*grown, P99) if grown is not None else None
