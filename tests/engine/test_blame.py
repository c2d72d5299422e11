"""Whose a leaked block is: each leak has its last owner's name, tenant and ending; a sound end leaves no name."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from engine_hooks import wire
from engine_hooks.core.blame import Blame
from engine_hooks.core.endings import MAX_ID
from engine_hooks.detail import Detail
from engine_hooks.names import printable, short_hash
from tests.bed.connectors import make_connector_scheduler, make_remote_request
from tests.bed.connectors import step as step_with_connector
from tests.bed.scheduler import make_request, make_scheduler, step
from tests.engine.observing import Watched


def marked(i: int, tokens: int = 70, tenant: str = "acme", session: str = "s1", **more: Any) -> Any:
    request = make_request(i, tokens, **more)
    request.sampling_params.extra_args = {"kvtide": {"tenant": tenant, "session": session}}
    return request


def leak_on_next_free(watched: Watched[Blame], count: int, *, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the pool's own method lose ``count`` blocks of the next list that it is to free."""
    cls = type(watched.pool)
    original = cls.free_blocks

    def lossy(self: Any, blocks: Any) -> None:
        monkeypatch.setattr(cls, "free_blocks", original)
        original(self, list(blocks)[count:])

    monkeypatch.setattr(cls, "free_blocks", lossy)


def watch(**shape: Any) -> Watched[Blame]:
    # The hooks wrap the instance; the class below stays free to be broken by a test.
    scheduler = make_scheduler(**shape)
    pool = scheduler.kv_cache_manager.block_pool
    pool.free_blocks = lambda blocks: type(pool).free_blocks(pool, blocks)
    return Watched(scheduler, Blame)


def abort(watched: Watched[Blame], *ids: str) -> None:
    watched.scheduler.finish_requests(list(ids), RequestStatus.FINISHED_ABORTED)


def test_leak_at_an_abort_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch()
    for i in range(3):
        watched.scheduler.add_request(marked(i, tenant=f"t{i}", session=f"s{i}"))
    step(watched.scheduler)
    leak_on_next_free(watched, 2, monkeypatch=monkeypatch)
    watched.now = 5.0
    abort(watched, "r1")
    assert watched.audit().orphaned == 2
    watched.now = 15.0
    [row] = watched.look()
    assert (row.kind, row.blocks, row.references, row.tenant) == ("orphaned", 2, 2, "t1")
    assert (row.request, row.session, row.ending) == (short_hash("r1"), short_hash("s1"), "aborted_front_end")
    assert row.age_seconds == pytest.approx(10.0)


def test_sound_ends_leave_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(num_blocks=40)
    for i in range(12):
        watched.scheduler.add_request(marked(i, 60, shared_prefix=32, max_tokens=20))
    for _ in range(6):
        step(watched.scheduler)
    abort(watched, "r0", "r3", "r9")
    for _ in range(100):
        step(watched.scheduler)
    assert watched.scheduler.requests == {}
    assert watched.audit().orphaned == 0
    assert watched.look() == ()
    assert not watched.observer._endings.caught


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda s, r: s.finish_requests(["r0"], RequestStatus.FINISHED_ABORTED), "aborted_front_end"),
        (lambda s, r: s.finish_requests(None, RequestStatus.FINISHED_ABORTED), "aborted_engine"),
        (lambda s, r: s.finish_requests("r0", RequestStatus.FINISHED_ABORTED), "finished"),
        (lambda s, r: s.finish_requests({"r0"}, RequestStatus.FINISHED_ERROR), "error"),
        (lambda s, r: [step(s) for _ in range(4)], "finished"),
        (lambda s, r: s._preempt_request(s.running.pop(), 0.0), "preempted"),
    ],
)
def test_each_ending_has_its_name(end: Any, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch()
    watched.scheduler.add_request(marked(0, max_tokens=3))
    step(watched.scheduler)
    leak_on_next_free(watched, 1, monkeypatch=monkeypatch)
    end(watched.scheduler, watched.scheduler.requests["r0"])
    watched.audit()
    [row] = watched.look()
    assert (row.ending, row.blocks) == (expected, 1)


def test_an_abort_with_stop_strings_may_have_been_a_stop() -> None:
    watched = watch()
    request = marked(0)
    request.sampling_params.stop = ["."]
    watched.scheduler.add_request(request)
    step(watched.scheduler)
    abort(watched, "r0")
    watched.taps.take_in()
    assert watched.observer._endings.by_request["r0"].how == "stop_or_abort"


def test_blocks_lost_by_a_running_request_are_found_through_the_last_audit() -> None:
    """A window's block that is dropped from the table and not given back: nobody ended, the tables of before tell."""
    watched = watch(sliding_window=64)
    watched.scheduler.add_request(marked(0, 200, tenant="long"))
    step(watched.scheduler)
    watched.audit()
    manager = watched.scheduler.kv_cache_manager.coordinator.single_type_managers[1]
    table = manager.req_to_blocks["r0"]
    table[-2] = watched.pool.null_block  # forgotten, not freed
    assert watched.audit().orphaned == 1
    watched.look()
    [row] = watched.look()
    assert (row.tenant, row.ending, row.request) == ("long", "running", short_hash("r0"))


def test_double_free_in_one_call_names_the_victim_of_42571(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call gives the same blocks back twice: those are over-freed, named after the request that ended."""
    watched = watch()
    for i in range(2):
        watched.scheduler.add_request(marked(i, tenant=f"t{i}"))
    step(watched.scheduler)
    cls = type(watched.pool)
    original = cls.free_blocks

    def twice(self: Any, blocks: Any) -> None:
        monkeypatch.setattr(cls, "free_blocks", original)
        blocks = list(blocks)
        original(self, [*blocks, *blocks[:2]])

    monkeypatch.setattr(cls, "free_blocks", twice)
    abort(watched, "r1")
    report = watched.audit()
    assert (report.orphaned, report.over_freed) == (0, 2)
    [row] = watched.look()
    assert (row.kind, row.blocks, row.references, row.tenant) == ("over_freed", 2, -2, "t1")


def test_shared_blocks_freed_twice_while_another_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch()
    for i in range(2):
        watched.scheduler.add_request(marked(i, 70, shared_prefix=64, tenant=f"t{i}"))
        step(watched.scheduler)
    shared = watched.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks["r0"][:2]
    abort(watched, "r1")
    assert watched.audit().over_freed == 0
    for block in shared:
        block.ref_cnt -= 1  # the fault: given back once more
    report = watched.audit()
    assert report.over_freed == 2
    rows = watched.look()
    assert sum(row.blocks for row in rows if row.kind == "over_freed") == 2


def test_names_go_when_the_blocks_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch()
    watched.scheduler.add_request(marked(0))
    step(watched.scheduler)
    leak_on_next_free(watched, 2, monkeypatch=monkeypatch)
    abort(watched, "r0")
    watched.audit()
    [row] = watched.look()
    leaked = [watched.pool.blocks[i] for i in watched.accounts.audit.finding.excess]
    watched.pool.free_blocks(leaked)
    assert watched.audit().orphaned == 0
    assert row.blocks == 2
    assert watched.look() == ()


def test_connector_failure_is_told_from_other_errors() -> None:
    watched: Watched[Blame] = Watched(make_connector_scheduler("RemoteConnector"), Blame)
    watched.scheduler.add_request(make_remote_request(0, 64, prefill="peer-a"))
    step_with_connector(watched.scheduler)
    watched.scheduler.finish_requests({"r0"}, RequestStatus.FINISHED_ERROR)
    watched.taps.take_in()
    assert watched.observer._endings.by_request["r0"].how == "connector_failure"


def test_plain_ids_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler()
    watched: Watched[Blame] = Watched(scheduler, Blame, env={"KVTIDE_PLAIN_IDS": "1"})
    watched.scheduler.add_request(marked(0))
    step(scheduler)
    abort(watched, "r0")
    watched.taps.take_in()
    assert watched.observer._endings.by_request["r0"].request == "r0"


def test_plain_ids_are_fit_for_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client chooses its request's id: one that no label may have would have the agent refuse the whole Detail."""
    scheduler = make_scheduler()
    pool = scheduler.kv_cache_manager.block_pool
    pool.free_blocks = lambda blocks: type(pool).free_blocks(pool, blocks)
    watched: Watched[Blame] = Watched(scheduler, Blame, env={"KVTIDE_PLAIN_IDS": "1"})
    request = marked(0)
    request.request_id = "\u00fc" * 100 + "\n"
    scheduler.add_request(request)
    step(scheduler)
    leak_on_next_free(watched, 1, monkeypatch=monkeypatch)
    abort(watched, request.request_id)
    watched.audit()
    frame = wire.encode(Detail(monotonic=0.0, leaks=watched.look()))
    [row] = wire.decode(frame).leaks
    assert (row.request, row.tenant, row.blocks) == (printable(request.request_id), "acme", 1)


@pytest.mark.parametrize("plain", [True, False])
def test_a_very_long_id_is_not_kept_and_its_name_is_what_it_would_be(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client chooses the front of its request's id, and thousands of ended requests are remembered."""
    scheduler = make_scheduler()
    pool = scheduler.kv_cache_manager.block_pool
    pool.free_blocks = lambda blocks: type(pool).free_blocks(pool, blocks)
    watched: Watched[Blame] = Watched(scheduler, Blame, env={"KVTIDE_PLAIN_IDS": "1"} if plain else {})
    request = marked(0)
    request.request_id = "x" * 100_000
    scheduler.add_request(request)
    step(scheduler)
    leak_on_next_free(watched, 1, monkeypatch=monkeypatch)
    abort(watched, request.request_id)
    watched.audit()
    [row] = watched.look()
    assert row.request == (printable if plain else short_hash)(request.request_id)
    [(key, ending)] = watched.observer._endings.by_request.items()
    assert len(key) == len(ending.request) <= MAX_ID + 33


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine_hooks.core.endings.MAX_REMEMBERED", 10)
    monkeypatch.setattr("engine_hooks.core.endings.MAX_CAUGHT", 3)
    watched = watch()
    for i in range(30):
        watched.scheduler.add_request(marked(i))
    step(watched.scheduler)
    for i in range(30):
        leak_on_next_free(watched, 1, monkeypatch=monkeypatch)
        abort(watched, f"r{i}")
    watched.taps.take_in()
    assert len(watched.observer._endings.by_request) == 10
    assert len(watched.observer._endings.caught) == 3
    assert watched.audit().orphaned == 30
    rows = watched.look()
    assert sum(row.blocks for row in rows) == 30
