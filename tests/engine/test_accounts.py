"""The accounts against vLLM's real scheduler and block pool: right numbers, no false alarm, nothing changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from engine_hooks.core.accounts import DRIFT_PASSES
from tests.bed.scheduler import make_request, make_scheduler, step
from tests.engine.accounting import LONG, Watched, fill


@pytest.fixture
def watched() -> Watched:
    return Watched(make_scheduler(num_blocks=2000))


def test_supported_and_clean_at_start(watched: Watched) -> None:
    assert watched.accounts.support.ok
    report = watched.report()
    assert (report.capacity, report.held, report.orphaned, report.over_freed, report.exact) == (1999, 0, 0, 0, True)
    assert report.cached_idle == 0


def test_numbers_are_the_engines_own(watched: Watched) -> None:
    fill(watched.scheduler, 20)
    report = watched.report()
    pool = watched.pool
    assert report.held == round(pool.get_usage() * (pool.num_gpu_blocks - 1))
    assert report.held == sum(b.ref_cnt > 0 for b in pool.blocks if not b.is_null)
    assert (report.orphaned, report.over_freed, report.exact) == (0, 0, True)


def test_cached_idle_is_counted(watched: Watched) -> None:
    fill(watched.scheduler, 5)
    watched.scheduler.finish_requests([f"r{i}" for i in range(5)], RequestStatus.FINISHED_ABORTED)
    report = watched.audit()
    expected = sum(b.ref_cnt == 0 and b.block_hash is not None for b in watched.pool.blocks if not b.is_null)
    assert expected > 0
    assert report.cached_idle == expected
    assert report.held == 0


def test_held_range_keeps_peaks_between_reports(watched: Watched) -> None:
    watched.report()
    fill(watched.scheduler, 10)
    watched.accounts.observe_step()
    peak = watched.accounts.report()
    watched.scheduler.finish_requests([f"r{i}" for i in range(10)], RequestStatus.FINISHED_ABORTED)
    after = watched.report()
    assert peak is not None
    assert peak.held_max == peak.held > 0
    assert (after.held, after.held_max) == (0, peak.held)


@pytest.mark.parametrize("leaked", [1, 7])
def test_leak_shows_at_once_under_load_and_is_then_named(watched: Watched, leaked: int) -> None:
    fill(watched.scheduler, 256, prompt=1100, shared=1024)
    assert watched.audit().orphaned == 0
    blocks = watched.pool.get_new_blocks(leaked)  # taken, and told to no table
    first = watched.report()
    assert (first.orphaned, first.exact) == (leaked, False)
    for _ in range(3):
        step(watched.scheduler)
    named = watched.audit()
    assert (named.orphaned, named.exact) == (leaked, True)
    assert set(watched.accounts.audit.finding.excess) == {b.block_id for b in blocks}
    watched.pool.free_blocks(blocks)
    assert watched.report().orphaned == 0
    assert watched.audit().over_freed == 0


def test_reference_leaked_on_a_shared_block_is_one_block(watched: Watched) -> None:
    fill(watched.scheduler, 50, prompt=200, shared=160)
    table = watched.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks["r0"]
    assert table[0].ref_cnt == 50
    watched.pool.touch([table[0]])
    assert watched.audit().orphaned == 1
    assert watched.accounts.audit.finding.excess == {table[0].block_id: 1}


def test_a_leak_on_a_hot_prefix_is_not_taken_for_drift(watched: Watched) -> None:
    """Each new request touches the leaked blocks, so that passes spread over steps never see them stand still."""
    prefix_leak = 0
    for i in range(300):
        if len(watched.scheduler.requests) < 30:
            watched.scheduler.add_request(make_request(i, 120, max_tokens=8, shared_prefix=96))
        step(watched.scheduler)
        watched.accounts.observe_step()
        if i == 20:
            table = watched.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks
            hot = next(blocks for blocks in table.values() if len(blocks) >= 6)[:6]
            watched.pool.touch(hot)
            prefix_leak = len(hot)
        watched.accounts.advance_audit(0.0)
        report = watched.report()
        assert (report.orphaned, report.ledger_drift) == (prefix_leak, 0), i
    assert watched.audit().exact


def test_a_pass_that_raised_proves_nothing(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(watched.scheduler, 5)
    watched.pool.get_new_blocks(7)
    assert watched.audit().orphaned == 7
    holders = watched.accounts.audit._view.holders

    def broken() -> Iterator[Any]:
        yield from list(holders())[:1]
        raise RuntimeError("planted")

    monkeypatch.setattr(watched.accounts.audit._view, "holders", broken)
    watched.accounts.request_audit()
    with pytest.raises(RuntimeError, match="planted"):
        watched.accounts.advance_audit(LONG)
    monkeypatch.undo()
    assert watched.report().orphaned == 7
    assert watched.audit().orphaned == 7


def test_without_the_count_the_audit_tells_and_says_that_it_lags(watched: Watched) -> None:
    fill(watched.scheduler, 5)
    for _ in range(5):
        watched.guard.note("ledger", RuntimeError("planted"))
    watched.guard.errors.clear()
    watched.pool.get_new_blocks(3)
    assert not watched.report().exact
    watched.accounts.request_audit()
    assert watched.audit().orphaned == 3


def test_more_leaks_than_can_be_named_are_all_counted() -> None:
    watched = Watched(make_scheduler(num_blocks=20_000))
    fill(watched.scheduler, 5)
    watched.pool.get_new_blocks(12_000)
    for _ in range(DRIFT_PASSES + 2):
        report = watched.audit()
        watched.clock.now += 100
    assert (report.orphaned, report.exact, report.ledger_drift) == (12_000, False, 0)


def test_leak_at_rest_is_exact_in_one_report(watched: Watched) -> None:
    fill(watched.scheduler, 3)
    watched.pool.get_new_blocks(11)
    watched.scheduler.finish_requests([f"r{i}" for i in range(3)], RequestStatus.FINISHED_ABORTED)
    report = watched.report()
    assert (report.held, report.orphaned, report.exact) == (11, 11, True)


def test_no_false_alarm_with_preemption_aborts_and_sharing() -> None:
    watched = Watched(make_scheduler(num_blocks=300, max_num_seqs=64))
    draw = random.Random(5)
    live, preempted = [], 0
    for i in range(500):
        request = make_request(i, draw.randrange(40, 300), max_tokens=draw.randrange(5, 120), shared_prefix=32)
        watched.scheduler.add_request(request)
        live.append(request)
        for _ in range(draw.randrange(4)):
            step(watched.scheduler)
        watched.accounts.advance_audit(0.0)  # one chunk: passes spread over many steps
        report = watched.report()
        assert (report.orphaned, report.over_freed) == (0, 0), i
        assert report.held == round(watched.scheduler.make_stats().kv_cache_usage * report.capacity)
        if draw.random() < 0.3:
            victim = draw.choice(live)
            watched.scheduler.finish_requests(victim.request_id, RequestStatus.FINISHED_ABORTED)
        preempted += sum(r.num_preemptions for r in live if r.is_finished())
        live = [r for r in live if not r.is_finished()]
    assert preempted > 0, "the pool was not small enough to preempt anybody"
    for _ in range(20_000):
        if not watched.scheduler.requests:
            break
        step(watched.scheduler)
    assert watched.audit().orphaned == 0
    assert watched.report().held == 0


def test_sliding_window_groups_balance() -> None:
    watched = Watched(make_scheduler(num_blocks=2000, sliding_window=64))
    assert watched.accounts.support.ok
    fill(watched.scheduler, 8, prompt=400, shared=128)
    for _ in range(200):
        step(watched.scheduler)
    managers = watched.scheduler.kv_cache_manager.coordinator.single_type_managers
    assert any(block.is_null for m in managers for blocks in m.req_to_blocks.values() for block in blocks)
    assert watched.audit().orphaned == 0
    watched.pool.get_new_blocks(2)
    assert watched.report().orphaned == 2


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(["add", "step", "step", "abort", "reset", "preempt"]), max_size=60), st.integers())
def test_references_are_conserved_after_every_step(actions: list[str], seed: int) -> None:
    watched = Watched(make_scheduler(num_blocks=120, max_num_seqs=16))
    scheduler, draw, serial = watched.scheduler, random.Random(seed), 0
    for action in actions:
        if action == "add":
            serial += 1
            scheduler.add_request(make_request(serial, draw.randrange(20, 400), max_tokens=30, shared_prefix=20))
        elif action == "step":
            step(scheduler)
        elif action == "abort" and scheduler.requests:
            scheduler.finish_requests(draw.choice(list(scheduler.requests)), RequestStatus.FINISHED_ABORTED)
        elif action == "preempt" and scheduler.running:
            scheduler._preempt_request(scheduler.running.pop(), 0.0)
        elif action == "reset":
            scheduler.reset_prefix_cache()
        assert watched.accounts.ledger.references == watched.accounts.ledger.recount()
        assert watched.accounts.ledger.net() == 0
    assert watched.audit().orphaned == 0


def test_behaviour_is_unchanged_step_by_step() -> None:
    """The same load with and without our wrappers: same schedule, same references, same order of the free queue."""

    def play(scheduler: Scheduler, look) -> list[object]:
        draw, seen = random.Random(11), []
        for i in range(120):
            scheduler.add_request(
                make_request(i, draw.randrange(20, 300), max_tokens=draw.randrange(5, 80), shared_prefix=16)
            )
            for _ in range(draw.randrange(3)):
                scheduled = step(scheduler)
                look()
                pool = scheduler.kv_cache_manager.block_pool
                seen.append(
                    (
                        dict(scheduled.num_scheduled_tokens),
                        [b.ref_cnt for b in pool.blocks if not b.is_null],
                        [b.block_id for b in pool.free_block_queue.get_all_free_blocks()],
                    )
                )
            if draw.random() < 0.3 and scheduler.requests:
                scheduler.finish_requests(draw.choice(list(scheduler.requests)), RequestStatus.FINISHED_ABORTED)
        return seen

    plain = play(make_scheduler(num_blocks=200, max_num_seqs=32), lambda: None)
    watched = Watched(make_scheduler(num_blocks=200, max_num_seqs=32))
    assert play(watched.scheduler, watched.audit) == plain


def test_a_pool_whose_blocks_are_taken_in_another_way_is_not_wrapped() -> None:
    scheduler = make_scheduler()
    pool = scheduler.kv_cache_manager.block_pool
    take = pool.get_new_blocks
    pool.get_new_blocks = lambda number, tier="gpu": take(number)
    watched = Watched(scheduler)
    assert watched.accounts.ledger is None
    assert watched.accounts.support.reason == "BlockPool.get_new_blocks takes more than a number"
    assert len(pool.get_new_blocks(2, tier="host")) == 2, "it takes what it took"
