"""Which cached blocks are reused first: idle, duplicate and unreachable ones; and whose prefixes are there later."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from vllm.sampling_params import SamplingParams

from tests.bed.fake_executor import BLOCK_SIZE
from tests.bed.scheduler import make_request
from tests.engine.levers.remembering import Play, check_queue, picture, queue_of

MakePlay = Callable[..., Play]


class Clocked:
    """A play whose conversations are sent turn by turn, with a clock that a test moves."""

    def __init__(self, play: MakePlay, blocks: int = 300, **kwargs: Any) -> None:
        self.game = game = play(blocks, **kwargs)
        self.now = 1000.0
        object.__setattr__(game.context, "now", lambda: self.now)
        releases: Any = game.desk._levers["evict_idle"]._releases  # type: ignore[attr-defined]
        if releases is not None:
            releases._clock = lambda: self.now
        self.serial = 10_000

    def turn(self, tenant: str, session: str, prompt: list[int], tokens: int = 4) -> Any:
        """Send a prompt and run it to its end; return the request."""
        request = self.begin(tenant, session, prompt, tokens)
        self.game.finish()
        return request

    def begin(self, tenant: str, session: str, prompt: list[int], tokens: int = 4) -> Any:
        self.serial += 1
        hasher = self.game.engine.request_block_hasher
        request = make_request(self.serial, len(prompt), tokens, len(prompt), block_size=BLOCK_SIZE, hasher=hasher)
        request = type(request)(
            request_id=f"c{self.serial}",
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(
                max_tokens=tokens, ignore_eos=True, extra_args={"kvtide": {"tenant": tenant, "session": session}}
            ),
            pooling_params=None,
            block_hasher=hasher,
        )
        return self.game.send(request)

    def hits(self, prompt: list[int]) -> int:
        """How many tokens of a prompt would be found."""
        probe = self.game.scheduler.kv_cache_manager
        request = self.begin("probe", "", prompt)
        found: int = probe.get_computed_blocks(request)[1]
        self.game.engine.abort_requests([request.request_id])
        self.game.out.pop(request.request_id), self.game.expected.pop(request.request_id)
        return found


def words(seed: int, blocks: int) -> list[int]:
    return [3 + (seed * 7919 + at * 31 + at // 7) % 500 for at in range(blocks * BLOCK_SIZE)]


def test_idle_sessions_go_first_and_what_is_moved_is_a_hit_until_it_is_reused(play: MakePlay) -> None:
    bed = Clocked(play)
    fresh, idle = words(1, 8), words(2, 8)
    bed.turn("gold", "busy", fresh)
    bed.turn("plain", "left", idle)  # used last: by vLLM's order it would go last
    bed.now += 400.0
    live = bed.begin("gold", "busy", words(3, 1))  # the session goes on
    bed.game.step()
    result = bed.game.order("evict_idle", turns=0)
    assert result.code == "done", result
    assert result.effect == {**result.effect, "moved": 8, "idle": 8, "unreachable": 0, "duplicates": 0}
    assert not result.in_force
    assert not any("free" in name for name in result.effect), "it frees nothing, and must not say so"
    check_queue(bed.game.pool)
    order = [block for block in queue_of(bed.game.pool) if bed.game.pool.blocks[block].block_hash is not None]
    assert len(order) == 16
    assert bed.hits([*idle, 5]) == 8 * BLOCK_SIZE
    assert bed.hits([*fresh, 5]) == 8 * BLOCK_SIZE
    assert live.request_id in bed.game.out
    assert bed.game.order("evict_idle", turns=0).code == "nothing"  # they stand there now
    bed.game.finish()
    bed.game.check_outputs()


@pytest.mark.parametrize("acted", [False, True])
def test_the_priority_tenants_prefix_survives_pressure(play: MakePlay, acted: bool) -> None:
    """The effect that it is measured by: without it the same load overwrites the prefix that will be asked for."""
    bed = Clocked(play, 70)
    gold, plain = words(1, 20), words(2, 20)
    bed.turn("gold", "g", gold)
    bed.now += 301.0
    bed.turn("gold", "g2", words(5, 1))
    bed.turn("plain", "p", plain)
    bed.now += 302.0
    again = bed.begin("gold", "g", words(6, 1))  # whoever pays most comes back
    bed.game.step()
    if acted:
        assert bed.game.order("evict_idle", turns=0, priority={"gold": 1}).effect["idle"] >= 20
    bed.game.finish()
    assert again.is_finished()
    for number in range(4):  # 40 blocks, where 27 hold nothing yet
        bed.turn("other", "", words(30 + number, 10))
    found = bed.hits([*gold, 5])
    assert (found == 20 * BLOCK_SIZE) is acted
    bed.game.check()


def test_a_session_s_last_turns_are_kept_until_it_is_over(play: MakePlay) -> None:
    bed = Clocked(play)
    bed.turn("plain", "s", words(1, 4))  # an answer that was asked for once more, in other words
    bed.turn("plain", "s", words(2, 4))
    bed.turn("plain", "s", words(3, 4))
    bed.now += 100.0
    bed.turn("plain", "t", words(4, 2))
    bed.now += 250.0  # s rests for 350 s, t for 250
    assert bed.game.order("evict_idle").code == "nothing"  # they stand before t's already: nothing would change
    bed.game.pool.touch(blocks := [b for b in bed.game.pool.blocks if b.block_hash is not None][:4])
    bed.game.pool.free_blocks(blocks[::-1])  # the first turn's, used last in vLLM's order
    assert bed.game.order("evict_idle", "try").effect["idle"] == 4
    bed.game.pool.touch(blocks := [b for b in bed.game.pool.blocks if b.block_hash is not None][4:12])
    bed.game.pool.free_blocks(blocks[::-1])
    assert bed.game.order("evict_idle", "try").effect["idle"] == 4  # the last two are kept
    assert bed.game.order("evict_idle", "try", turns=1).effect["idle"] == 8
    assert bed.game.order("evict_idle", "try", turns=0).effect["idle"] == 12
    bed.now += 260.0  # over, after 600 s: nobody will come back to it. t rests too, and its last turn is kept
    assert bed.game.order("evict_idle", "try").effect["idle"] == 12


def test_copies_and_what_nobody_can_reach_go_before_what_is_idle(play: MakePlay) -> None:
    bed = Clocked(play, requests=8)
    chain = words(1, 6)
    bed.begin("plain", "a", chain, 20)
    bed.begin("plain", "b", chain, 20)  # at the same time: both compute the same blocks
    bed.game.finish()
    gone = words(2, 6)
    bed.turn("plain", "c", gone)
    keeper = bed.turn("gold", "", words(3, 2))
    pool = bed.game.pool
    first_of_gone = next(b for b in pool.blocks if b.block_hash == _key(bed, gone))
    pool.evict_blocks({first_of_gone.block_id})  # as vLLM does when a connector says that a block is bad
    kept = [b for b in pool.blocks if b.block_hash is not None and b.block_hash == _key(bed, words(3, 2))]
    pool.touch(kept)
    pool.free_blocks(kept)
    queue = pool.free_block_queue
    for block in kept:  # it would be reused first
        queue.remove(block)
        queue.prepend_n([block])
    assert keeper.is_finished()
    effect = bed.game.order("evict_idle", "try").effect
    assert (effect["unreachable"], effect["idle"]) == (5, 0)
    assert effect["duplicates"] >= 0
    result = bed.game.order("evict_idle", blocks=3)
    assert result.effect["moved"] == 3
    check_queue(pool)
    assert bed.hits([*gone, 5]) == 0
    bed.game.check()


def _key(bed: Clocked, prompt: list[int]) -> Any:
    from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

    request = bed.begin("probe", "", prompt)
    bed.game.engine.abort_requests([request.request_id])
    bed.game.out.pop(request.request_id), bed.game.expected.pop(request.request_id)
    return make_block_hash_with_group_id(request.block_hashes[0], 0)


def test_duplicates_are_told_by_their_hash(play: MakePlay) -> None:
    bed = Clocked(play)
    pool = bed.game.pool
    bed.turn("plain", "a", words(1, 4))
    originals = [b for b in pool.blocks if b.block_hash is not None]
    copies = pool.get_new_blocks(4)
    for original, copy in zip(originals, copies, strict=True):
        copy.set_block_hash(original.block_hash)
        pool.cached_block_hash_to_block.insert(original.block_hash, copy)
    pool.free_blocks(copies)
    effect = bed.game.order("evict_idle").effect
    assert (effect["moved"], effect["duplicates"]) == (4, 4)
    order = [block for block in queue_of(pool) if pool.blocks[block].block_hash is not None]
    assert order[:4] == [b.block_id for b in copies]
    assert bed.hits([*words(1, 4), 5]) == 4 * BLOCK_SIZE


def test_blocks_that_hold_nothing_are_still_reused_before_all_others(play: MakePlay) -> None:
    bed = Clocked(play)
    bed.turn("gold", "", words(1, 4))
    bed.now += 100.0
    bed.turn("plain", "p", words(2, 4))
    bed.now += 290.0
    bed.turn("gold", "", words(1, 4))
    hashes = [bed.game.pool.blocks[block].block_hash for block in queue_of(bed.game.pool)]
    empties = hashes.index(next(h for h in hashes if h is not None))
    bed.now += 20.0
    bed.game.order("evict_idle", turns=0)
    hashes = [bed.game.pool.blocks[block].block_hash for block in queue_of(bed.game.pool)]
    assert hashes.index(next(h for h in hashes if h is not None)) == empties


def test_a_broken_queue_is_not_touched(play: MakePlay) -> None:
    bed = Clocked(play)
    bed.turn("plain", "a", words(1, 4))
    bed.turn("gold", "b", words(2, 4))
    block = bed.game.pool.blocks[queue_of(bed.game.pool)[-1]]
    with bent(block):
        before = picture(bed.game)
        assert bed.game.order("evict_idle", idle_seconds=0.0).code == "unsafe"
        assert picture(bed.game) == before


@contextmanager
def bent(block: Any) -> Iterator[None]:
    saved, block.prev_free_block = block.prev_free_block, block
    yield
    block.prev_free_block = saved


def test_whose_a_block_is_is_not_noted_where_the_lever_is_not_allowed(play: MakePlay) -> None:
    bed = Clocked(play, allowed="watermark")
    bed.turn("plain", "a", words(1, 4))
    assert "free" not in vars(bed.game.scheduler.kv_cache_manager)
    result = bed.game.order("evict_idle", "try", idle_seconds=0.0)
    assert (result.code, "not noted" in result.detail) == ("nothing", True)


def test_the_book_is_as_large_as_the_pool_and_no_larger(play: MakePlay) -> None:
    bed = Clocked(play, 70)
    releases: Any = bed.game.desk._levers["evict_idle"]._releases  # type: ignore[attr-defined]
    for number in range(50):
        bed.turn("plain", f"s{number}", words(number, 3))
    assert len(releases._releases) == 70
    assert len(releases._turns) == 50
    assert dataclasses.is_dataclass(next(one for one in releases._releases if one is not None))


def test_hot_blocks_go_to_the_back_while_they_are_held(play: MakePlay) -> None:
    bed = Clocked(play, 200)
    clock = [0.0]
    object.__setattr__(bed.game.context, "clock", lambda: clock[0])
    hot, cold = words(1, 6), words(2, 6)
    action = bed.game.order("hold_hot", blocks=5, cycle_seconds=5, hold_milliseconds=300).action
    bed.turn("gold", "", hot)
    for _ in range(3):
        bed.turn("gold", "", [*hot, 9, 9])
    bed.turn("plain", "", cold)
    ids = {b.block_id for b in bed.game.pool.blocks if b.block_hash == _key(bed, hot)}
    clock[0] = 5.1
    bed.begin("plain", "", words(3, 1), 2)
    bed.game.step()
    check_queue(bed.game.pool)
    last = queue_of(bed.game.pool)[-5:]
    assert ids <= set(last)
    assert last[-1] in ids  # the beginning of a prefix is the last to go
    bed.game.finish()
    clock[0] = 5.5  # held no longer
    before = queue_of(bed.game.pool)
    bed.begin("plain", "", words(4, 1), 1)
    bed.game.finish()
    bed.game.order("hold_hot", "undo", action)
    assert [b for b in queue_of(bed.game.pool) if b in before[-3:]] == before[-3:]
    bed.game.check_outputs()
