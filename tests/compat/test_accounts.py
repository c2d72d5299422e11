"""The accounts on this version's scheduler: they balance after each step, name what was planted, change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bed.scheduler import make_scheduler, step
from tests.compat.build import Watched, fill, play

WINDOWS = pytest.mark.parametrize("window", [None, 64], ids=["full", "hybrid"])


def test_an_engine_that_served_nothing_is_clean() -> None:
    report = Watched(make_scheduler(500)).report()
    assert (report.capacity, report.held, report.orphaned, report.over_freed, report.exact) == (499, 0, 0, 0, True)


@WINDOWS
@pytest.mark.parametrize(
    ("blocks", "shared", "aborts", "shows"),
    [(500, 96, 0.0, "sharing"), (64, 0, 0.0, "preemption"), (90, 32, 0.6, "aborts")],
    ids=["sharing", "preemption", "aborts"],
)
def test_books_balance_after_each_step(blocks: int, shared: int, aborts: float, shows: str, window: int | None) -> None:
    watched = Watched(make_scheduler(blocks, max_num_seqs=16, sliding_window=window))
    seen: set[str] = set()

    def look() -> None:
        watched.check()
        watched.accounts.advance_audit(0.0)  # one chunk: passes spread over many steps
        tables = watched.tables()
        if any(block.ref_cnt > 1 and not block.is_null for blocks in tables for block in blocks):
            seen.add("sharing")
        if any(block.is_null for blocks in tables for block in blocks):
            seen.add("placeholder")
        if any(request.num_preemptions for request in watched.scheduler.requests.values()):
            seen.add("preemption")

    if aborts:
        seen.add("aborts")
    play(watched.scheduler, look, shared=shared, aborts=aborts)
    assert shows in seen
    assert ("placeholder" in seen) == (window is not None)
    report = watched.audit()
    assert (report.held, report.orphaned, report.over_freed, report.exact) == (0, 0, 0, True)
    assert report.ledger_drift == 0


@WINDOWS
@pytest.mark.parametrize("leaked", [1, 7])
def test_a_leak_is_counted_at_once_and_named_exactly(leaked: int, window: int | None) -> None:
    watched = Watched(make_scheduler(2000, sliding_window=window))
    fill(watched.scheduler, 20, prompt=200, shared=128)
    assert watched.audit().orphaned == 0
    blocks = watched.pool.get_new_blocks(leaked)  # taken, and told to no table
    assert watched.report().orphaned == leaked
    for _ in range(3):
        step(watched.scheduler)
    report = watched.audit()
    assert (report.orphaned, report.over_freed, report.exact) == (leaked, 0, True)
    assert watched.named() == {block.block_id: 1 for block in blocks}
    watched.pool.free_blocks(blocks)
    report = watched.audit()
    assert (report.orphaned, report.over_freed, watched.named()) == (0, 0, {})


@WINDOWS
def test_a_double_free_is_counted_at_once_and_named_exactly(window: int | None) -> None:
    watched = Watched(make_scheduler(2000, sliding_window=window))
    fill(watched.scheduler, 10, prompt=200, shared=128)
    block = next(b for blocks in watched.tables() for b in blocks if b.ref_cnt == 10 and not b.is_null)
    watched.pool.free_blocks([block])  # nine references remain for ten holders
    report = watched.report()
    assert (report.orphaned, report.over_freed) == (0, 1)
    report = watched.audit()
    assert (report.orphaned, report.over_freed, report.exact) == (0, 1, True)
    assert watched.named() == {block.block_id: -1}


def test_at_rest_every_held_block_is_orphaned() -> None:
    watched = Watched(make_scheduler(500))
    play(watched.scheduler, lambda: None, shared=32, requests=5)
    watched.pool.get_new_blocks(11)
    report = watched.report()
    assert (report.held, report.orphaned, report.exact) == (11, 11, True)


@WINDOWS
def test_schedule_references_and_free_queue_are_the_same_with_the_accounts(window: int | None) -> None:
    def run(scheduler: Any, audit: Any) -> list[object]:
        pool, seen = scheduler.kv_cache_manager.block_pool, []

        def look() -> None:
            audit()
            seen.append(
                (
                    [(r.request_id, r.num_computed_tokens, r.num_tokens) for r in scheduler.running],
                    [block.ref_cnt for block in pool.blocks],
                    [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
                )
            )

        play(scheduler, look, shared=32)
        return seen

    watched = Watched(make_scheduler(90, max_num_seqs=16, sliding_window=window))
    plain = make_scheduler(90, max_num_seqs=16, sliding_window=window)
    assert run(watched.scheduler, watched.audit) == run(plain, lambda: None)
