"""What is told later is told whole and in order; and what a request costs right after a step is a few notes."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from engine_hooks.core.tenants import TenantObserver
from engine_hooks.core.work import WorkObserver
from tests.bed.scheduler import make_request, make_scheduler, step
from tests.engine.observing import Watched


def serve(watched: Watched[Any], i: int) -> None:
    watched.scheduler.add_request(make_request(i, 40, 3))
    while watched.scheduler.requests:
        step(watched.scheduler)


def test_a_request_that_comes_and_ends_is_three_notes() -> None:
    watched = Watched(make_scheduler(), TenantObserver)
    for i in range(5):
        serve(watched, i)
    told = [listeners for listeners, _ in watched.taps._later]
    assert told == [watched.taps.arrived, watched.taps.admitted, watched.taps.departed] * 5


def test_a_request_that_waits_is_no_note_a_step() -> None:
    """Refused again and again, it is told to who counts refusals, and noted when it gets its memory."""
    watched = Watched(make_scheduler(21), TenantObserver)
    for i in range(2):
        watched.scheduler.add_request(make_request(i, 200, 60))
    for _ in range(30):
        step(watched.scheduler)
    assert list(watched.taps.refusals) == ["r1"]
    assert watched.taps.refused_in == watched.taps.schedules
    assert len(watched.taps._later) == 3
    watched.scheduler.finish_requests(["r0"], RequestStatus.FINISHED_ABORTED)
    step(watched.scheduler)
    assert not watched.taps.refusals
    assert [listeners for listeners, _ in watched.taps._later[3:]] == [watched.taps.departed, watched.taps.admitted]


def test_an_id_that_comes_again_before_anybody_looks_is_two_requests() -> None:
    tenants, work = (Watched(make_scheduler(), kind) for kind in (TenantObserver, WorkObserver))
    for watched in (tenants, work):
        for _ in range(3):
            serve(watched, 0)
    [row] = tenants.look()
    assert (row.requests_total, row.ended_total, row.waiting, row.running) == (3, {"finished": 3}, 0, 0)
    row = work.look()
    assert (sum(row.request_seconds.counts), sum(row.prompt_tokens.counts)) == (3, 3)
    assert not work.observer._admitted


@pytest.mark.parametrize("kind", [TenantObserver, WorkObserver])
def test_notes_are_bounded_where_nobody_looks(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine_hooks.core.taps.MAX_LATER", 8)
    watched = Watched(make_scheduler(), kind)
    for i in range(20):
        serve(watched, i)
        assert len(watched.taps._later) < 8


def test_a_listener_that_raises_is_counted_and_the_others_hear_all() -> None:
    watched = Watched(make_scheduler(), TenantObserver)

    def explode(*_: Any) -> None:
        raise RuntimeError("planted")

    watched.taps.departed.insert(0, explode)
    for i in range(3):
        serve(watched, i)
    watched.taps.take_in()
    assert watched.guard.errors == {"explode": 3}
    assert not watched.observer._living
