"""The work section on the real scheduler: tokens computed, and tokens computed a second time."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.v1.request import Request, RequestStatus

from engine_hooks.core.work import LONG_BLOCKS, WorkObserver
from engine_hooks.detail import WorkRow
from engine_hooks.names import short_hash
from tests.bed.scheduler import fake_output, make_request, make_scheduler
from tests.engine.observing import Watched

STEP_SECONDS = 0.5


def watch(blocks: int, **scheduler: Any) -> Watched[WorkObserver]:
    """A scheduler with ``blocks`` usable blocks of 16 tokens."""
    return Watched(make_scheduler(blocks + 1, max_num_seqs=32, **scheduler), WorkObserver)


def step(watched: Watched[WorkObserver]) -> None:
    """Run a step that takes half a second; another half passes before the next."""
    scheduler = watched.scheduler
    scheduled = scheduler.schedule()
    watched.now += STEP_SECONDS
    scheduler.update_from_output(scheduled, fake_output(scheduled, scheduler.requests))
    watched.now += STEP_SECONDS


def drain(watched: Watched[WorkObserver]) -> WorkRow:
    while watched.scheduler.requests:
        step(watched)
    row: WorkRow = watched.look()
    return row


def add(watched: Watched[WorkObserver], *requests: Request) -> None:
    for request in requests:
        watched.scheduler.add_request(request)


def rebuilt(row: WorkRow) -> tuple[int | None, int | None, float]:
    return row.rebuilt_preempted_total, row.rebuilt_evicted_total, row.rebuild_seconds_total


def preempt(watched: Watched[WorkObserver], request: Request) -> None:
    """Put a running request back, as schedule() does."""
    watched.scheduler.running.remove(request)
    watched.scheduler._preempt_request(request, 0.0)


def again(number: int, prompt: int, max_tokens: int, name: str) -> Request:
    """The same prompt as request ``r<number>``, under another name."""
    twin = make_request(number, prompt, max_tokens)
    twin.request_id = name
    return twin


# -- tokens ------------------------------------------------------------------------------------------------


def test_prompts_and_generated_tokens_are_told_apart() -> None:
    watched = watch(200, tokens=128)
    add(watched, make_request(1, 300, 20), make_request(2, 50, 1))  # the first takes three steps of 128 tokens
    row = drain(watched)
    assert row.prefill_tokens_total == 350
    # Each generated token but a request's last is computed in a step after it.
    assert row.scheduled_tokens_total == 350 + 19
    assert rebuilt(row) == (0, 0, 0.0)


def test_a_prompt_of_which_one_token_is_left_counts_as_prompt() -> None:
    watched = watch(200)
    add(watched, make_request(1, 65, 1))
    drain(watched)
    add(watched, again(1, 65, 1, "twin"))  # 64 of 65 tokens are cached
    assert drain(watched).prefill_tokens_total == 65 + 1


# -- rebuilt after a preemption ----------------------------------------------------------------------------


def test_a_preempted_request_computes_again_what_it_had_computed() -> None:
    watched = watch(200, caching=False)
    request = make_request(1, 100, 30)
    add(watched, request)
    for _ in range(11):
        step(watched)  # 100 prompt tokens and 10 of the 11 generated ones are computed
    preempt(watched, request)
    before = watched.look()
    step(watched)
    row = watched.look()
    assert row.scheduled_tokens_total - before.scheduled_tokens_total == 111
    # 110 of the 111 tokens of a step of half a second.
    assert rebuilt(row) == (110, 0, pytest.approx(STEP_SECONDS * 110 / 111))
    assert row.prefill_tokens_total == 100 + 111
    assert rebuilt(drain(watched)) == rebuilt(row)


def test_what_the_prefix_cache_gives_back_is_not_rebuilt() -> None:
    watched = watch(200)
    request = make_request(1, 100, 30)
    add(watched, request)
    for _ in range(11):
        step(watched)
    preempt(watched, request)
    step(watched)
    # 110 were computed, and six full blocks of 16 came back: their hashes were still there.
    assert rebuilt(watched.look()) == (110 - 96, 0, pytest.approx(STEP_SECONDS * 14 / 15))


def test_a_request_preempted_in_its_prefill_rebuilds_only_what_it_had() -> None:
    watched = watch(200, caching=False, tokens=64)
    request = make_request(1, 150, 5)
    add(watched, request)
    step(watched)
    step(watched)
    preempt(watched, request)  # 128 of 150
    step(watched)
    preempt(watched, request)  # and again when 64 of those 128 have been rebuilt
    assert rebuilt(watched.look())[0] == 64
    row = drain(watched)
    assert rebuilt(row)[:2] == (64 + 128, 0)
    assert row.prefill_tokens_total == 128 + 64 + 150


def test_a_request_that_ends_while_it_waits_again_rebuilds_nothing() -> None:
    watched = watch(200, caching=False)
    request = make_request(1, 100, 30)
    add(watched, request)
    step(watched)
    preempt(watched, request)
    watched.scheduler.finish_requests("r1", RequestStatus.FINISHED_ABORTED)
    add(watched, again(1, 100, 3, "r1"))  # another client's request with the same id
    assert rebuilt(drain(watched)) == (0, 0, 0.0)


def test_preemption_for_memory_is_seen_in_schedule_itself() -> None:
    watched = watch(12, caching=False)
    first, second = make_request(1, 80, 60), make_request(2, 80, 60)
    add(watched, first, second)
    while not second.num_preemptions:
        computed = second.num_computed_tokens
        step(watched)
    assert computed == 96  # each filled its sixth block
    row = drain(watched)
    assert rebuilt(row)[:2] == (96, 0)


# -- rebuilt after an eviction -----------------------------------------------------------------------------


def test_a_prompt_whose_blocks_were_evicted_is_rebuilt() -> None:
    watched = watch(20)
    add(watched, make_request(1, 160, 1))
    drain(watched)
    add(watched, make_request(2, 300, 1))  # 19 of the 20 blocks: ten empty ones, and nine of the ten cached ones
    assert rebuilt(drain(watched)) == (0, 0, 0.0)
    before = watched.look()
    add(watched, again(1, 160, 1, "twin"))
    row = drain(watched)
    # The last blocks of a prompt go first, so that its first one is left; the rest is computed a second time.
    assert row.scheduled_tokens_total - before.scheduled_tokens_total == 144
    assert rebuilt(row) == (0, 144, pytest.approx(STEP_SECONDS))


def test_a_new_prompt_and_a_cached_prompt_are_not_rebuilt() -> None:
    watched = watch(40)
    add(watched, make_request(1, 160, 1))
    drain(watched)
    add(watched, again(1, 160, 1, "twin"))  # nine blocks are hits, and the last one must be computed for its logits
    drain(watched)
    add(watched, make_request(2, 600, 1))  # evicts all
    drain(watched)
    add(watched, make_request(3, 160, 1))
    assert rebuilt(drain(watched)) == (0, 0, 0.0)


def test_an_evicted_block_is_rebuilt_once_per_eviction_and_over_chunks() -> None:
    watched = watch(20, tokens=40)
    add(watched, make_request(1, 160, 1))
    drain(watched)
    add(watched, make_request(2, 320, 1))
    drain(watched)
    add(watched, again(1, 160, 1, "twin"))  # chunks of 40 tokens end inside of blocks
    row = drain(watched)
    assert rebuilt(row)[:2] == (0, 160)
    add(watched, again(1, 160, 1, "hit"))
    assert rebuilt(drain(watched))[:2] == (0, 160)


def test_a_preempted_request_whose_blocks_were_evicted_counts_once() -> None:
    watched = watch(20)
    request = make_request(1, 160, 30)
    add(watched, request)
    for _ in range(5):
        step(watched)
    preempt(watched, request)
    assert request.num_tokens == 165
    watched.scheduler.waiting.remove_request(request)  # it waits while another one takes the whole pool
    add(watched, make_request(2, 320, 1))
    step(watched)
    watched.scheduler.waiting.add_request(request)
    assert rebuilt(drain(watched))[:2] == (164, 0)


def test_without_prefix_caching_nothing_is_evicted() -> None:
    watched = watch(20, caching=False)
    for name in ("one", "two"):
        add(watched, again(1, 160, 1, name))
        drain(watched)
    assert rebuilt(watched.look()) == (0, 0, 0.0)


def test_evictions_that_cannot_be_seen_are_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler(21)
    monkeypatch.delattr(type(scheduler.kv_cache_manager.block_pool), "_maybe_evict_cached_block")
    row = Watched(scheduler, WorkObserver).look()
    assert row.rebuilt_evicted_total is None
    assert row.rebuilt_preempted_total == 0


# -- how long, how much, how fast --------------------------------------------------------------------------


def test_a_request_lives_from_its_admission_until_its_blocks_are_given_back() -> None:
    watched = watch(200)
    add(watched, make_request(1, 100, 3))
    add(watched, make_request(2, 100, 30))
    for _ in range(3):
        step(watched)
    row = watched.look()
    assert sum(row.request_seconds.counts) == 1
    assert row.request_seconds.sum == 2.5  # given back within the third step
    watched.now = 100.0
    watched.scheduler.finish_requests("r2", RequestStatus.FINISHED_ABORTED)
    assert watched.look().request_seconds.sum == 102.5


def test_a_preemption_ends_a_life_and_a_wait_is_none() -> None:
    watched = watch(200)
    request = make_request(1, 100, 2)
    add(watched, request)
    step(watched)
    preempt(watched, request)
    assert watched.look().request_seconds.sum == 1.0
    watched.now = 50.0
    drain(watched)
    row = watched.look()
    assert sum(row.request_seconds.counts) == 2
    assert row.request_seconds.sum == 1.5


def test_a_prompt_counts_by_its_length_once_however_often_its_request_is_admitted() -> None:
    watched = watch(200)
    short, long = make_request(1, 100, 2), make_request(2, 600, 2)
    add(watched, short, long)
    step(watched)
    preempt(watched, long)
    drain(watched)
    row = watched.look().prompt_tokens
    assert row is not None
    counts = {bound: count for bound, count in zip(row.bounds, row.counts, strict=False) if count}
    assert counts == {128: 1, 1024: 1}
    assert (row.counts[-1], row.sum) == (0, 700)


def test_tail_slots_are_what_running_requests_have_and_do_not_fill() -> None:
    watched = watch(200)
    assert watched.look().tail_slots == 0
    add(watched, make_request(1, 100, 50), make_request(2, 64, 50))
    step(watched)
    assert watched.look().tail_slots == 7 * 16 - 100
    step(watched)
    assert watched.look().tail_slots == 7 * 16 - 101 + 5 * 16 - 65
    drain(watched)
    assert watched.look().tail_slots == 0


def test_the_first_full_attention_group_counts() -> None:
    watched = watch(200, sliding_window=32)
    add(watched, make_request(1, 100, 50))
    step(watched)
    assert watched.look().tail_slots == 7 * 16 - 100


def test_the_steepest_of_the_long_requests_is_named() -> None:
    watched = watch(2000, tokens=128)
    add(watched, make_request(1, LONG_BLOCKS * 16, 1000), make_request(2, 32, 1000))
    for _ in range(8):
        step(watched)
    assert watched.look().steepest_slope is None
    add(watched, make_request(3, 3900, 1000))  # its prompt takes 126 tokens a second, the others generate one each
    for _ in range(24):
        step(watched)
        row = watched.look()
    assert row.steepest_slope == pytest.approx(126 / 16, rel=0.02)
    assert row.steepest_request == short_hash("r3")
    watched.scheduler.finish_requests("r3", RequestStatus.FINISHED_ABORTED)
    row = watched.look()
    assert row.steepest_slope == pytest.approx(1 / 16, rel=0.3)
    assert row.steepest_request == short_hash("r1")  # the second is short
    watched.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    row = watched.look()
    assert (row.steepest_slope, row.steepest_request) == (None, "")


def test_nothing_is_kept_of_requests_that_are_gone() -> None:
    watched = watch(30)
    for i in range(40):
        add(watched, make_request(i, 40 + i, 30))
        if i % 3 == 0:
            watched.scheduler.finish_requests(f"r{i}", RequestStatus.FINISHED_ABORTED)
        if i % 5 == 0:
            step(watched)
    drain(watched)
    watched.taps.take_in()  # as with each report, whether anybody hears it or not
    observer = watched.observer
    kept = (observer._prefills, observer._marks, observer._admitted, observer._rebuilding)
    assert [len(table) for table in kept] == [0, 0, 0, 0]
