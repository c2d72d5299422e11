"""What is kept of counters over a time: enough for that time however late values come, and no more."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import example, given
from hypothesis import strategies as st

from agent.signals.baseline import Learning
from agent.signals.counters import Kept
from agent.signals.tenants import TenantsTracker
from agent.signals.types import Reading
from engine_hooks.detail import Histogram
from tests.unit.details import make_detail, make_histogram, make_tenant

READING = Reading(engine="m", instance="i", hooked=True, capacity=1000)


@given(st.floats(1.0, 60.0), st.floats(1.0, 8.0), st.lists(st.floats(0.25, 1.5), min_size=1, max_size=60))
@example(10.0, 6.0, [1.0] * 20)
def test_as_much_is_kept_as_is_asked_for(every: float, times: float, apart: list[float]) -> None:
    seconds = every * times
    kept: Kept[int] = Kept(every, seconds)
    added: list[tuple[float, int]] = []
    for number, now in enumerate(accumulate(every * each for each in apart)):
        if kept.add(now, number):
            added.append((now, number))
        found = next(((now - at, value) for at, value in added if now - at <= seconds + 1e-6), None)
        assert kept.ago(now, seconds) == (found if found is not None and found[0] > 0 else None)
        assert len(kept) <= times + 2


def test_sessions_of_many_tenants_are_kept_with_their_bounds_once() -> None:
    """From the wire each histogram comes with bounds of its own."""

    def lived(count: int) -> Histogram:
        return make_histogram(bounds=tuple(float(f"{bound}.5") for bound in range(32)), counts=(count,) * 33)

    tracker = TenantsTracker("m", Learning({}))
    for now in range(0, 1200, 10):
        rows = tuple(make_tenant(tenant=f"t{n}", session_lifetime_seconds=lived(now + n)) for n in range(20))
        tracker.take(float(now), READING, make_detail(tenants=rows), calm=False)
    kept = [each for _, sessions in tracker._sessions.values() for each in sessions.values()]
    assert len(kept) == 4 * 20
    assert len({id(each.bounds) for each in kept}) == 1
    assert kept[-1] == lived(900 + 19)
