"""What a run shows: counted after its warm-up, and of what was held."""

from __future__ import annotations

import pytest

from agent.advise.measure import Seen
from agent.state import AgentState
from engine_hooks.detail import Detail, Histogram
from tests.unit.builders import make_pool
from tests.unit.details import make_allocation, make_tenant, make_work
from tests.unit.recordings import MONOTONIC, moment, sound_engine


def state(second: int, *, done: int, preempted: int, rebuilt: int, prefill: int, slow: int = 0) -> AgentState:
    histogram = Histogram(bounds=(1.0, 10.0), counts=(done - slow, slow, 0), sum=1.0)
    work = make_work(
        request_seconds=histogram, tail_slots=480, rebuilt_preempted_total=rebuilt, rebuilt_evicted_total=0,
        prefill_tokens_total=prefill,
    )  # fmt: skip
    waits = Histogram(bounds=(0.5,), counts=(0, 0), sum=0.0)
    allocation = make_allocation(preempted_total=preempted, wait_seconds=waits)
    tenant = make_tenant(ended_total={"finished": done})
    detail = Detail(monotonic=50.0, work=work, allocation=allocation, tenants=(tenant,))
    return moment(second, sound_engine(detail=detail, pool=make_pool(orphaned=0, over_freed=0)))


def test_the_warm_up_counts_for_nothing() -> None:
    seen = Seen(MONOTONIC + 10)
    seen.take(state(5, done=100, preempted=50, rebuilt=900, prefill=1000))
    for second in range(10, 20):
        seen.take(state(second, done=200, preempted=60, rebuilt=1000, prefill=3000))
    found = seen.measured()
    assert found.ended == 100
    assert found.preempted_ratio == pytest.approx(0.1)
    assert found.rebuild_ratio == pytest.approx(0.05)
    assert found.waste_ratio == pytest.approx(480 / (300 * 16))
    assert found.use_ratio == pytest.approx(0.3)
    assert found.p99_seconds == pytest.approx(0.99)


def test_slow_requests_are_in_the_p99() -> None:
    seen = Seen(MONOTONIC)
    seen.take(state(0, done=0, preempted=0, rebuilt=0, prefill=0))
    seen.take(state(1, done=100, preempted=0, rebuilt=0, prefill=0, slow=50))
    found = seen.measured()
    assert found.p99_seconds is not None
    assert 9.0 < found.p99_seconds <= 10.0
    assert found.rebuild_ratio is None  # nothing was computed: that is no share of 0


def test_nothing_seen_is_nothing_known() -> None:
    found = Seen(MONOTONIC).measured()
    assert (found.ended, found.p99_seconds, found.use_ratio) == (0, None, None)
