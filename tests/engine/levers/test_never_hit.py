"""Which cached blocks were never found since they were cached, and in what order they go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine_hooks.core.levers.free_queue import put_before
from engine_hooks.core.levers.reuse import HORIZON_SECONDS, LEAST_SEEN
from tests.engine.levers.remembering import Play, check_queue, queue_of
from tests.engine.levers.test_evict_idle import Clocked, words

MakePlay = Callable[..., Play]


def hits_of(bed: Clocked, prompt: list[int]) -> list[int]:
    """Whether each cached block of ``prompt`` counts as found; its blocks in the order of the prompt."""
    releases: Any = bed.game.desk._levers["evict_idle"]._releases  # type: ignore[attr-defined]
    request = bed.begin("probe", "", prompt)
    blocks = bed.game.scheduler.kv_cache_manager.get_computed_blocks(request)[0].blocks[0]
    bed.game.engine.abort_requests([request.request_id])
    bed.game.out.pop(request.request_id), bed.game.expected.pop(request.request_id)
    return [releases.hits[block.block_id] for block in blocks]


def test_a_block_is_found_when_another_request_has_had_it(play: MakePlay) -> None:
    bed = Clocked(play)
    once, twice = words(1, 4), words(2, 4)
    bed.turn("plain", "", [*once, 5])
    bed.turn("plain", "", [*twice, 5])
    bed.turn("plain", "", [*twice, *words(3, 2), 5])
    assert hits_of(bed, [*once, 6]) == [0] * 4
    assert hits_of(bed, [*twice, *words(3, 2), 6]) == [1] * 4 + [0] * 2


def test_it_is_found_while_the_one_that_filled_it_still_runs(play: MakePlay) -> None:
    bed = Clocked(play)
    bed.begin("plain", "", [*words(1, 4), 5], tokens=30)
    bed.game.step(2)
    bed.turn("plain", "", [*words(1, 4), 7], tokens=2)  # and ends first
    bed.game.finish()
    assert hits_of(bed, [*words(1, 4), 6]) == [1] * 4


def test_who_is_preempted_does_not_find_its_own(play: MakePlay) -> None:
    bed = Clocked(play)
    bed.begin("plain", "", [*words(1, 4), 5], tokens=20)
    other = bed.begin("plain", "", [*words(2, 4), 5], tokens=20)
    bed.game.step(3)
    assert bed.game.order("preempt", requests=1, cap=True).effect["requests"] == 1
    bed.game.order("preempt", "undo", f"a{bed.game._actions}")
    bed.game.finish()
    assert other.num_preemptions == 1
    assert hits_of(bed, [*words(2, 4), 6]) == [0] * 4


def test_what_is_computed_anew_was_not_found(play: MakePlay) -> None:
    bed = Clocked(play)
    for _ in range(2):
        bed.turn("plain", "", [*words(1, 4), 5])
    assert hits_of(bed, [*words(1, 4), 6]) == [1] * 4
    bed.game.scheduler.kv_cache_manager.reset_prefix_cache()
    bed.turn("plain", "", [*words(1, 4), 5])
    assert hits_of(bed, [*words(1, 4), 6]) == [0] * 4


def test_what_was_moved_keeps_what_is_known_of_it(play: MakePlay) -> None:
    bed = Clocked(play)
    for _ in range(2):
        bed.turn("plain", "", [*words(1, 1), 5])
    releases: Any = bed.game.desk._levers["evict_idle"]._releases  # type: ignore[attr-defined]
    number = next(number for number, found in enumerate(releases.hits) if found)
    releases.moved(number, 299)
    assert releases.hits[299] == 1


def test_they_go_before_what_is_idle_and_behind_what_nobody_can_reach(play: MakePlay) -> None:
    bed = Clocked(play)
    bed.turn("plain", "", words(6, 2))  # stays: the first of all that is cached, and found a moment ago below
    bed.turn("plain", "left", [*words(1, 4), 5])
    bed.now += 700.0  # that session is over
    bed.turn("plain", "", [*words(2, 4), 5])
    bed.turn("gold", "", [*words(3, 4), 5])
    bed.turn("plain", "busy", [*words(4, 4), 5])
    bed.now += 100.0
    bed.turn("plain", "", [*words(5, 4), 5])  # too young
    bed.turn("plain", "", [*words(6, 2), 5])
    _first(bed, bed.game.pool.free_block_queue.get_all_free_blocks()[-1])
    result = bed.game.order("evict_idle", never_hit_seconds=60, priority={"gold": 1})
    assert result.effect == {**result.effect, "moved": 8, "never_hit": 4, "idle": 4}
    check_queue(bed.game.pool)
    order = [b for b in queue_of(bed.game.pool) if bed.game.pool.blocks[b].block_hash is not None]
    ids = [_ids(bed, [*words(number, 4), 6]) for number in (2, 1)]
    assert [set(order[:4]), set(order[4:8])] == ids
    assert bed.game.order("evict_idle", "try", never_hit_seconds=60).code == "would"  # gold's, when nobody has priority
    bed.game.check()


def _first(bed: Clocked, block: Any) -> None:
    """Have a block be the first of all cached ones that would be reused."""
    queue = bed.game.pool.free_block_queue
    put_before(queue, next(b for b in queue.get_all_free_blocks() if b.block_hash is not None), [block])


def _ids(bed: Clocked, prompt: list[int]) -> set[int]:
    request = bed.begin("probe", "", prompt)
    found = bed.game.scheduler.kv_cache_manager.get_computed_blocks(request)[0].blocks[0]
    bed.game.engine.abort_requests([request.request_id])
    bed.game.out.pop(request.request_id), bed.game.expected.pop(request.request_id)
    return {block.block_id for block in found}


@pytest.mark.parametrize("returning", [False, True])
def test_from_which_age_on_is_learned_from_what_has_come_back(play: MakePlay, returning: bool) -> None:
    bed = Clocked(play, 600)
    for number in range(LEAST_SEEN + 1):
        prompt = words(10 + number, 2)
        bed.turn("plain", "", [*prompt, 5])
        bed.now += 20.0
        for more in (1, 2) if returning else ():
            bed.turn("plain", "", [*prompt, *words(90, more), 5])
            bed.now += 20.0
    bed.turn("gold", "", [*words(4, 2), 5])
    bed.now += HORIZON_SECONDS - 20.0
    bed.turn("plain", "", [*words(5, 2), 5])
    bed.now += 15.0
    gold = _ids(bed, [*words(4, 2), 6])
    _first(bed, next(b for b in bed.game.pool.blocks if b.block_id in gold))  # of gold too little is known
    effect = bed.game.order("evict_idle", "try", idle_seconds=86_400.0).effect
    if returning:  # two in three, after 20 s: the last prompt is younger, of the others there is the last turn's block
        assert effect["never_hit"] == LEAST_SEEN + 1
    else:  # nobody: the last prompt, too
        assert effect["never_hit"] == 2 * (LEAST_SEEN + 2)


def test_an_age_that_cannot_be_is_refused(play: MakePlay) -> None:
    bed = Clocked(play)
    assert bed.game.order("evict_idle", never_hit_seconds=-1).code == "bad_argument"
    assert bed.game.order("evict_idle", never_hit_seconds="soon").code == "bad_argument"
