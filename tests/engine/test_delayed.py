"""Delayed and deferred frees: kept blocks are never leaks; they have a peer, a direction, an age and a lease."""

from __future__ import annotations

from typing import Any

import pytest

from engine_hooks.core.delayed import DelayedFrees
from engine_hooks.names import NO_TENANT
from tests.bed.connectors import deliver, make_connector_scheduler, make_remote_request, step
from tests.bed.hisparse import make_hisparse_scheduler, report
from tests.bed.scheduler import make_request
from tests.engine.observing import Watched

# isort: split
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.request import RequestStatus


def watch(name: str = "RemoteConnector", **more: object) -> Watched[DelayedFrees]:
    return Watched(make_connector_scheduler(name, **more), DelayedFrees)  # type: ignore[arg-type]


def marked(request: Any, tenant: str) -> Any:
    request.sampling_params.extra_args = {"kvtide": {"tenant": tenant}}
    return request


def test_a_signal_that_never_comes_is_a_delayed_free_of_46283() -> None:
    """The prefill side keeps a finished request's blocks until its peer has read them; that peer is gone."""
    watched = watch(role="kv_producer")
    request = make_remote_request(0, 64, max_tokens=1, decode=True, remote_engine_id="peer-d")
    watched.scheduler.add_request(marked(request, "acme"))
    step(watched.scheduler)
    watched.now += 1000.0
    step(watched.scheduler)
    report = watched.audit()
    assert (report.orphaned, report.over_freed, report.delayed) == (0, 0, 4)
    [row] = watched.look()
    assert (row.peer, row.direction, row.requests, row.blocks) == ("peer-d", "send", 1, 4)
    assert row.tenants == {"acme": 4}
    assert row.oldest_seconds >= 1000.0
    assert row.lease_seconds is None
    assert row.expired == 0


def test_the_signal_that_comes_ends_it() -> None:
    watched = watch(role="kv_producer")
    watched.scheduler.add_request(make_remote_request(0, 64, max_tokens=1, decode=True))
    step(watched.scheduler)
    assert watched.audit().delayed == 4
    step(watched.scheduler, sent=["r0"])
    report = watched.audit()
    assert (report.held, report.orphaned, report.delayed) == (0, 0, 0)
    assert watched.look() == ()
    assert not watched.observer._kept


def test_nixl_has_a_lease_and_what_outlives_it_is_expired() -> None:
    watched = watch("NixlConnector", role="kv_both", extra_config={"kv_lease_duration": 30})
    watched.scheduler.add_request(make_remote_request(0, 64, max_tokens=1, decode=True))
    step(watched.scheduler)
    assert watched.audit().delayed == 4
    [row] = watched.look()
    assert (row.lease_seconds, row.expired) == (30.0, 0)
    watched.now += 31.0
    [row] = watched.look()
    assert (row.blocks, row.expired) == (4, 4)
    step(watched.scheduler, sent=["r0"])
    assert watched.look() == ()


def test_an_aborted_remote_load_is_kept_as_a_receive() -> None:
    """The client goes away while KV is on its way here: the blocks stay until the transfer has ended."""
    watched = watch(role="kv_consumer")
    watched.scheduler.add_request(marked(make_remote_request(0, 64, prefill="peer-p"), "acme"))
    step(watched.scheduler)
    assert watched.scheduler.requests["r0"].status == RequestStatus.WAITING_FOR_REMOTE_KVS
    watched.scheduler.finish_requests(["r0"], RequestStatus.FINISHED_ABORTED)
    report = watched.audit()
    assert (report.orphaned, report.delayed) == (0, 3)
    [row] = watched.look()
    assert (row.peer, row.direction, row.blocks, row.tenants) == ("peer-p", "receive", 3, {"acme": 3})
    step(watched.scheduler, received=["r0"])
    report = watched.audit()
    assert (report.held, report.orphaned, report.delayed) == (0, 0, 0)
    assert watched.look() == ()


def test_a_remote_load_that_ends_well_is_never_a_delayed_free() -> None:
    watched = watch(role="kv_consumer")
    watched.scheduler.add_request(make_remote_request(0, 64, prefill="peer-p", max_tokens=3))
    step(watched.scheduler)
    watched.look()
    watched.now += 7.0
    [row] = watched.look()
    assert (row.peer, row.direction, row.blocks, row.oldest_seconds) == ("peer-p", "loading", 3, 7.0)
    step(watched.scheduler, received=["r0"])
    step(watched.scheduler)
    for _ in range(6):
        step(watched.scheduler)
        assert watched.look() == ()
    assert watched.audit().held == 0


def test_victims_blocks_in_deferred_frees_of_ascend_16315() -> None:
    """With steps in flight, a preempted request's blocks wait in deferred frees: explained, counted, and aged."""
    watched = watch("QuietConnector", asynchronous=True)
    for i in range(3):
        watched.scheduler.add_request(marked(make_request(i, 64), f"t{i}"))
    flying = [watched.scheduler.schedule()]
    victim = watched.scheduler.running.pop()
    watched.scheduler._preempt_request(victim, 0.0)
    report = watched.audit()
    assert (report.orphaned, report.over_freed) == (0, 0)
    assert report.deferred == 4
    watched.look()
    watched.now += 50.0
    [row] = watched.look()
    assert (row.direction, row.blocks, row.tenants) == ("deferred", 4, {"t2": 4})
    assert row.oldest_seconds == pytest.approx(50.0 + 4 * 1.1)
    deliver(watched.scheduler, flying.pop())
    report = watched.audit()
    assert (report.orphaned, report.deferred) == (0, 0)
    assert watched.look() == ()


def copying() -> tuple[Watched[DelayedFrees], Any]:
    """A scheduler with a step in flight that copies a block before it is written to: both ends wait for that step.

    They are r0's, whose tenant is t0; r1 waits behind it.
    """
    scheduler = make_hisparse_scheduler(block_size=32, tokens=82, partial_hits=True, asynchronous=True)
    watched = Watched(scheduler, DelayedFrees)
    hasher = get_request_block_hasher(16, sha256)
    scheduler.add_request(marked(make_request(0, 82, 24, hasher=hasher), "t0"))
    while True:
        flying = scheduler.schedule()
        if scheduler.deferred_frees:
            assert flying.kv_cache_block_copies
            scheduler.add_request(marked(make_request(1, 82, 24, hasher=hasher), "t1"))
            return watched, flying
        deliver(scheduler, flying, worker_meta=report(scheduler))


def test_the_ends_of_a_copy_are_not_the_next_requests() -> None:
    """A request that ends just then, with nothing in flight, puts off no free of its own."""
    watched, flying = copying()
    watched.scheduler.finish_requests(["r1"], RequestStatus.FINISHED_ABORTED)
    assert len(watched.scheduler.deferred_frees) == 1
    [row] = watched.look()
    assert (row.direction, row.blocks, row.tenants) == ("deferred", 2, {NO_TENANT: 2})
    assert watched.audit().orphaned == 0
    deliver(watched.scheduler, flying, worker_meta=report(watched.scheduler))
    assert watched.look() == ()


def test_a_request_that_puts_its_free_off_behind_a_copy_is_named() -> None:
    watched, flying = copying()
    watched.scheduler.finish_requests(["r0"], RequestStatus.FINISHED_ABORTED)
    assert len(watched.scheduler.deferred_frees) == 2
    [row] = watched.look()
    assert row.tenants.keys() == {NO_TENANT, "t0"}
    assert row.tenants[NO_TENANT] == 2
    deliver(watched.scheduler, flying, worker_meta=report(watched.scheduler))
    assert watched.look() == ()
    assert watched.audit().orphaned == 0


def test_a_deferred_free_is_never_taken_for_an_earlier_one() -> None:
    """A busy engine has one in each step: Python gives a new one the place in memory of the one that has just gone."""
    watched = watch("QuietConnector", asynchronous=True)
    flying: list[Any] = []
    for i in range(120):
        watched.scheduler.add_request(marked(make_request(i, 64), f"t{i}"))
        scheduled = watched.scheduler.schedule()
        if i % 5 in (0, 2, 3):
            watched.scheduler.finish_requests([f"r{i}"], RequestStatus.FINISHED_ABORTED)
        if flying:
            deliver(watched.scheduler, flying.pop())
        flying.append(scheduled)
        if i % 3 == 1:
            watched.scheduler.finish_requests([f"r{i - 1}", f"r{i}"], RequestStatus.FINISHED_ABORTED)
        watched.now += 1.0
        if i % 7 == 6:
            for row in watched.look():
                assert row.oldest_seconds <= 3.0
                assert row.tenants.keys() <= {f"t{n}" for n in range(i - 3, i + 1)}


def test_deferred_frees_that_nobody_asks_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an agent there is no section: what has drained makes room for what comes."""
    monkeypatch.setattr("engine_hooks.core.delayed.MAX_TRACKED", 4)
    watched = watch("QuietConnector", asynchronous=True)
    for i in range(12):
        watched.scheduler.add_request(marked(make_request(i, 64), f"t{i}"))
        scheduled = watched.scheduler.schedule()
        watched.scheduler.finish_requests([f"r{i}"], RequestStatus.FINISHED_ABORTED)
        if i < 11:
            deliver(watched.scheduler, scheduled)
        assert len(watched.observer._deferred) <= 4
    [row] = watched.look()
    assert row.tenants == {"t11": 4}


def test_a_request_that_finishes_twice_changes_nothing() -> None:
    """The second end finds no request; whatever vLLM does with it, no block is left or given back twice."""
    watched = watch(role="kv_producer")
    watched.scheduler.add_request(make_remote_request(0, 64, decode=True))
    step(watched.scheduler)
    for _ in range(2):
        watched.scheduler.finish_requests(["r0"], RequestStatus.FINISHED_ABORTED)
    report = watched.audit()
    assert (report.orphaned, report.over_freed, report.delayed) == (0, 0, 4)
    step(watched.scheduler, sent=["r0"])
    report = watched.audit()
    assert (report.held, report.over_freed) == (0, 0)


def test_a_free_after_the_free_is_over_freed() -> None:
    """The late signal of a request that another path has ended already: its blocks are given back once more."""
    watched = watch(role="kv_producer")
    watched.scheduler.add_request(make_remote_request(0, 64, max_tokens=1, decode=True))
    step(watched.scheduler)
    request = watched.scheduler.requests["r0"]
    blocks = list(watched.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks["r0"])
    watched.scheduler._free_blocks(request)
    watched.pool.free_blocks(blocks)  # the fault
    assert watched.audit().over_freed == 4


def test_peers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(role="kv_producer", num_blocks=2000)
    for i in range(100):
        watched.scheduler.add_request(
            make_remote_request(i, 32, max_tokens=1, decode=True, remote_engine_id=f"peer-{i}")
        )
    step(watched.scheduler)
    rows = watched.look()
    assert len(rows) <= 64
    assert sum(row.blocks for row in rows) == 200
    assert sum(row.requests for row in rows) == 100
