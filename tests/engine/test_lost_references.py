"""Blocks that no queue has, blocks freed too often, and references that take a path of their own: each by its name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bed.scheduler import make_scheduler, step
from tests.engine.accounting import LONG, Busy, Watched, fill


@pytest.fixture
def watched() -> Watched:
    return Watched(make_scheduler(num_blocks=2000))


def test_block_lost_without_a_reference_is_orphaned_at_rest_and_the_audit_comes_to_an_end(watched: Watched) -> None:
    watched.pool.free_block_queue.popleft()  # in no list and with no reference: out of use for good
    for _ in range(3):
        assert watched.audit().orphaned == 1
    assert not watched.accounts.advance_audit(LONG)
    assert not watched.accounts.audit.wants_more


def test_a_block_lost_from_the_free_queue_of_a_busy_engine_is_reported_within_two_passes() -> None:
    busy = Busy()
    assert {(report.orphaned, report.exact) for report in busy.audit_passes(3)} == {(0, True)}
    busy.pool.free_block_queue.popleft_n(3)
    assert busy.audit_passes(2)[-1].orphaned == 3
    assert {(report.orphaned, report.over_freed) for report in busy.audit_passes(3)} == {(3, 0)}
    assert busy.accounts.drift == 0


def test_a_block_that_is_lost_when_it_is_given_back_is_reported_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reference has gone by the counted way, and it came to no queue."""
    busy = Busy()
    busy.audit_passes(1)
    append, forgotten = busy.pool.free_block_queue.append_n, []

    def forget_one(blocks: list[Any]) -> None:
        if blocks and not forgotten:
            forgotten.append(blocks.pop(0))
        append(blocks)

    monkeypatch.setattr(busy.pool.free_block_queue, "append_n", forget_one)
    busy.audit_passes(1)
    assert forgotten
    assert busy.audit_passes(2)[-1].orphaned == 1


def test_blocks_taken_for_good_before_the_start_are_not_lost_on_a_busy_engine() -> None:
    scheduler = make_scheduler(num_blocks=6000)
    sinks = scheduler.kv_cache_manager.block_pool.free_block_queue.popleft_n(4)  # as models with attention sinks do
    busy = Busy(scheduler)
    assert busy.accounts.main.view.aside == 4
    assert {(report.capacity, report.orphaned) for report in busy.audit_passes(3)} == {(5995, 0)}
    busy.pool.free_block_queue.append(sinks.pop())  # one more than was thought is never less than none
    assert busy.audit_passes(2)[-1].orphaned == 0


def test_double_free_is_over_freed(watched: Watched) -> None:
    fill(watched.scheduler, 10, prompt=200, shared=160)
    table = watched.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks["r0"]
    watched.pool.free_blocks([table[0]])  # nine references remain for ten holders
    first = watched.report()
    assert (first.orphaned, first.over_freed) == (0, 1)
    named = watched.audit()
    assert (named.orphaned, named.over_freed, named.exact) == (0, 1, True)


def test_a_leak_and_a_double_free_do_not_cancel(watched: Watched) -> None:
    fill(watched.scheduler, 10, prompt=200, shared=160)
    table = watched.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks["r0"]
    watched.pool.get_new_blocks(1)
    watched.pool.free_blocks([table[0]])
    watched.accounts.request_audit()
    report = watched.audit()
    assert (report.orphaned, report.over_freed) == (1, 1)


def test_reference_on_an_uncounted_path_is_drift_and_no_leak(watched: Watched) -> None:
    fill(watched.scheduler, 5)
    watched.accounts.ledger.references += 3  # as if three references had been taken unseen and explained
    assert watched.report().orphaned == 3
    for _ in range(5):
        watched.audit()
        watched.clock.now += 100
    report = watched.report()
    assert (report.orphaned, report.ledger_drift, report.exact) == (0, 3, True)


def table_of(watched: Watched, request: str = "r0") -> list[Any]:
    tables: dict[str, list[Any]] = watched.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks
    return tables[request]


def test_a_block_lost_under_load_shows_at_once_and_is_one_block_however_it_is_found(watched: Watched) -> None:
    fill(watched.scheduler, 5)
    lost = watched.pool.free_block_queue.popleft()
    first = watched.report()
    assert (first.orphaned, first.over_freed, first.exact) == (1, 0, False)
    found = watched.audit()
    assert (found.orphaned, found.over_freed, found.exact) == (1, 0, True)
    watched.pool.free_block_queue.append(lost)
    back = watched.report()
    assert (back.orphaned, back.over_freed) == (0, 0)
    step(watched.scheduler)
    assert (watched.audit().orphaned, watched.accounts.drift) == (0, 0)


def test_a_block_that_comes_twice_in_one_call_is_over_freed_by_one(watched: Watched) -> None:
    fill(watched.scheduler, 5)
    block = table_of(watched)[-1]
    watched.pool.free_blocks([block, block])  # it had one reference
    ledger = watched.accounts.ledger
    assert (ledger.references, ledger.net()) == (ledger.recount(), -2)
    report = watched.audit()
    assert (report.orphaned, report.over_freed, report.ledger_drift) == (0, 1, 0)


def test_a_block_that_keeps_its_reference_when_it_is_given_back_shows_at_once() -> None:
    scheduler = make_scheduler(num_blocks=2000)
    pool = scheduler.kv_cache_manager.block_pool
    free = pool.free_blocks
    pool.free_blocks = lambda blocks: free(blocks[1:])  # below our wrapper
    watched = Watched(scheduler)
    fill(scheduler, 5)
    scheduler.finish_requests("r0", scheduler.requests["r1"].status.FINISHED_ABORTED)
    ledger = watched.accounts.ledger
    assert (ledger.references, ledger.net()) == (ledger.recount(), 1)
    assert watched.report().orphaned == 1
    assert (watched.audit().orphaned, watched.accounts.drift) == (1, 0)


def test_two_references_that_one_block_gives_back_are_no_block_freed_too_often(watched: Watched) -> None:
    fill(watched.scheduler, 10, prompt=200, shared=160)
    block = table_of(watched)[0]
    watched.pool.touch([block])
    watched.pool.touch([block])
    assert watched.audit().orphaned == 1
    watched.pool.free_blocks([block])
    watched.pool.free_blocks([block])
    report = watched.report()
    assert (report.orphaned, report.over_freed) == (0, 0)
    assert (watched.audit().orphaned, watched.accounts.drift) == (0, 0)
