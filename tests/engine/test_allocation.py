"""The allocation section on the real scheduler: who was refused memory and for how long, and where blocks go."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from engine_hooks.core import allocation
from engine_hooks.core.allocation import WAIT_SECONDS, AllocationObserver
from engine_hooks.core.observers import UnsupportedError
from engine_hooks.detail import AllocationRow
from tests.bed.scheduler import make_request, make_scheduler, step
from tests.engine.observing import Watched

QUIET: dict[str, Any] = {
    "refused_total": 0,
    "preempted_total": 0,
    "consecutive_refusals": 0,
    "most_consecutive_refusals": 0,
    "most_retries": 0,
    "over_three_retries_total": 0,
    "waiting_refused": 0,
    "oldest_refused_seconds": None,
}


def watch(blocks: int, **scheduler: Any) -> Watched[AllocationObserver]:
    """A scheduler with ``blocks`` usable blocks of 16 tokens."""
    return Watched(make_scheduler(blocks + 1, **scheduler), AllocationObserver)


def numbers(row: AllocationRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in QUIET}


def add(watched: Watched[AllocationObserver], *requests: tuple[int, int, int]) -> None:
    """Add requests: number, prompt tokens, tokens to generate."""
    for request in requests:
        watched.scheduler.add_request(make_request(*request))


def drain(watched: Watched[AllocationObserver]) -> None:
    while watched.scheduler.requests:
        step(watched.scheduler)


def wait_bucket(seconds: float) -> tuple[int, ...]:
    """One wait of so many seconds."""
    counts = [0] * (len(WAIT_SECONDS) + 1)
    counts[sum(bound < seconds for bound in WAIT_SECONDS)] = 1
    return tuple(counts)


def test_room_for_everybody_is_quiet_and_every_block_is_timed() -> None:
    watched = watch(100)
    add(watched, (1, 160, 40), (2, 64, 20))
    drain(watched)
    row = watched.look()
    assert numbers(row) == QUIET
    assert sum(row.wait_seconds.counts) == 0
    # 200 tokens, the last of which is never computed, are 13 blocks; 84 are 6.
    assert row.blocks_taken_total == row.blocks_given_back_total == 13 + 6
    # The prompts in one call each, and then block by block.
    assert sum(row.block_seconds.counts) == 1 + 3 + 1 + 2
    assert row.block_seconds.sum > 0


def test_blocks_are_taken_by_prefix_hits_too_and_given_back_once() -> None:
    watched = watch(100)
    add(watched, (1, 64, 1))
    drain(watched)
    assert watched.look().blocks_taken_total == watched.look().blocks_given_back_total == 4
    # The same prompt: three of its four blocks are cached and idle, the last one must be computed again.
    add(watched, (1, 64, 8))
    step(watched.scheduler)
    row = watched.look()
    assert (row.blocks_taken_total, row.blocks_given_back_total) == (8, 4)
    # A second holder takes what is already held: nothing leaves the free queue but its own last block.
    watched.scheduler.add_request(make_request(1, 64, 8).__class__(**twin_of(watched)))
    step(watched.scheduler)
    row = watched.look()
    assert row.blocks_taken_total - row.blocks_given_back_total == held(watched)
    drain(watched)
    row = watched.look()
    assert row.blocks_taken_total == row.blocks_given_back_total


def twin_of(watched: Watched[AllocationObserver]) -> dict[str, Any]:
    """The arguments of a request like the one that runs, under a name of its own."""
    (request,) = watched.scheduler.running
    return {
        "request_id": "twin",
        "prompt_token_ids": list(request.prompt_token_ids),
        "sampling_params": request.sampling_params,
        "pooling_params": None,
        "block_hasher": request._block_hasher,
    }


def held(watched: Watched[AllocationObserver]) -> int:
    pool = watched.scheduler.kv_cache_manager.block_pool
    return int(pool.num_gpu_blocks) - 1 - int(pool.get_num_free_blocks())


def test_a_refused_request_waits_is_counted_and_gets_its_memory() -> None:
    watched = watch(12)
    add(watched, (1, 96, 17), (2, 160, 4))  # 6 and soon 7 blocks held, and 10 needed: too many for 12
    step(watched.scheduler)  # the first is admitted, the second refused
    watched.now = 2.0
    for _ in range(4):
        step(watched.scheduler)
    watched.now = 3.0
    assert numbers(watched.look()) == {
        **QUIET,
        "refused_total": 5,
        "consecutive_refusals": 1,
        "most_consecutive_refusals": 1,
        "most_retries": 1,
        "waiting_refused": 1,
        "oldest_refused_seconds": 3.0,
    }
    while watched.scheduler.waiting:
        step(watched.scheduler)
    row = watched.look()
    assert row.refused_total == 17  # the first needs 17 steps for its 17 tokens
    assert row.most_consecutive_refusals == 1  # and lets nothing go until then
    assert (row.consecutive_refusals, row.waiting_refused, row.oldest_refused_seconds) == (0, 0, None)
    assert row.over_three_retries_total == 0
    assert row.wait_seconds.counts == wait_bucket(3.0)
    assert row.wait_seconds.sum == 3.0
    assert row.preempted_total == 0


def serving(requests: int) -> Watched[AllocationObserver]:
    """A full pool that ``requests`` of 2 blocks share, which end one after the other, and one behind that needs all."""
    watched = watch(2 * requests)
    add(watched, *((i, 16, 10 + i) for i in range(requests)))
    step(watched.scheduler)
    add(watched, (100, 32 * requests, 1))
    return watched


def test_a_full_pool_that_serves_has_few_refusals_in_a_row() -> None:
    """Hundreds of steps in which the head of the queue waits for one request's end are one attempt, and so is it."""
    watched = watch(60)
    add(watched, *((i, 80 + 16 * (i % 3), 60 + 7 * i) for i in range(40)))  # 5 to 7 blocks at first, up to 27 at last
    most = 0
    while watched.scheduler.requests:
        step(watched.scheduler)
        most = max(most, watched.look().consecutive_refusals)
    row = watched.look()
    assert row.refused_total > 500
    assert row.preempted_total
    assert most == row.most_consecutive_refusals <= 3
    assert row.over_three_retries_total == 0


def test_room_that_is_made_again_and_again_and_is_never_enough_is_counted_each_time() -> None:
    watched = serving(6)
    seen = []
    while watched.scheduler.waiting:
        step(watched.scheduler)
        seen.append(watched.look().consecutive_refusals)
    assert sorted(set(seen)) == [0, 1, 2, 3, 4, 5, 6]  # at first, and after each of five ends; then it is admitted
    row = watched.look()
    assert (row.consecutive_refusals, row.most_consecutive_refusals, row.over_three_retries_total) == (0, 6, 1)
    assert row.refused_total > 6


def test_three_retries_are_not_many() -> None:
    watched = serving(3)
    drain(watched)
    row = watched.look()
    assert (row.most_consecutive_refusals, row.over_three_retries_total) == (3, 0)


def test_requests_that_give_up_one_after_the_other_are_refusals_in_a_row() -> None:
    """Each that comes to the head is refused, and leaves before it was served: nobody was granted anything."""
    watched = watch(12)
    add(watched, (1, 96, 60), *((i, 160, 4) for i in range(2, 8)))
    for i in range(2, 8):
        for _ in range(3):
            step(watched.scheduler)
        row = watched.look()
        assert (row.consecutive_refusals, row.most_retries) == (i - 1, 1)
        watched.scheduler.finish_requests(f"r{i}", RequestStatus.FINISHED_ABORTED)


def test_a_request_aborted_while_refused_is_forgotten() -> None:
    watched = watch(12)
    add(watched, (1, 96, 17), (2, 160, 4))
    step(watched.scheduler)
    assert watched.look().waiting_refused == 1
    watched.scheduler.finish_requests("r2", RequestStatus.FINISHED_ABORTED)
    row = watched.look()
    assert (row.waiting_refused, row.oldest_refused_seconds, row.most_retries) == (0, None, 0)
    drain(watched)
    assert sum(watched.look().wait_seconds.counts) == 0
    assert watched.look().refused_total == 1


def test_requests_put_back_for_memory_are_counted_and_those_put_back_by_a_reset_are_not() -> None:
    watched = watch(12)
    add(watched, (1, 80, 60), (2, 80, 60))  # 5 blocks each, and 9 each at their ends
    while not watched.look().preempted_total:
        step(watched.scheduler)
    assert [request.request_id for request in watched.scheduler.running] == ["r1"]
    drain(watched)
    row = watched.look()
    assert row.preempted_total == 1
    assert row.refused_total > 10  # until the first had ended
    assert (row.most_consecutive_refusals, row.over_three_retries_total) == (0, 0)

    watched = watch(100)
    add(watched, (1, 80, 60), (2, 80, 60))
    step(watched.scheduler)
    assert watched.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert [request.num_preemptions for request in watched.scheduler.requests.values()] == [1, 1]
    drain(watched)
    assert numbers(watched.look()) == QUIET


def test_a_request_is_counted_once_for_many_retries_however_often_it_waits() -> None:
    watched = watch(12)
    add(watched, *((i, 16, 10 + i) for i in range(6)))
    step(watched.scheduler)
    add(watched, (100, 170, 6))  # 11 of the 12 blocks: all six must end
    big = watched.scheduler.requests["r100"]
    for waits in (1, 2):
        while big not in watched.scheduler.running:
            step(watched.scheduler)
        row = watched.look()
        assert (sum(row.wait_seconds.counts), row.most_consecutive_refusals) == (waits, 6)
        watched.scheduler.running.remove(big)
        watched.scheduler._preempt_request(big, 0.0)
        watched.scheduler.waiting.remove_request(big)
        add(watched, *((10 * waits + i, 16, 10 + i) for i in range(6)))
        watched.scheduler.waiting.add_request(big)  # behind six others again
    drain(watched)
    assert watched.look().over_three_retries_total == 1


def test_requests_beyond_the_limit_are_counted_but_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "MAX_REFUSED", 0)
    watched = watch(12)
    add(watched, (1, 96, 17), (2, 160, 4))
    step(watched.scheduler)
    row = watched.look()
    assert (row.refused_total, row.consecutive_refusals, row.waiting_refused) == (1, 0, 0)


def test_a_pool_that_raises_raises_through_the_hook() -> None:
    watched = watch(4)
    with pytest.raises(ValueError, match="free blocks"):
        watched.scheduler.kv_cache_manager.block_pool.get_new_blocks(5)
    assert sum(watched.look().block_seconds.counts) == 0


def test_a_scheduler_without_a_block_pool_is_unsupported() -> None:
    scheduler = make_scheduler(5)
    del scheduler.kv_cache_manager.block_pool
    with pytest.raises(UnsupportedError, match="no KV block pool"):
        Watched(scheduler, AllocationObserver)
