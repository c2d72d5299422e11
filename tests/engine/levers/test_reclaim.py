"""Leaked blocks come back; and nothing else does, whatever is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from tests.engine.levers.remembering import Play, picture

MakePlay = Callable[..., Play]
IN_FLIGHT = pytest.mark.parametrize("in_flight", [False, True], ids=["one step at a time", "steps in flight"])


def table(game: Play, request: Any) -> list[Any]:
    manager = game.scheduler.kv_cache_manager.coordinator.single_type_managers[0]
    blocks: list[Any] = manager.req_to_blocks[request.request_id]
    return blocks


def forget(game: Play) -> set[int]:
    """Blocks that are taken and told to no table."""
    return {block.block_id for block in game.pool.get_new_blocks(5)}


def withhold(game: Play) -> set[int]:
    """A request ends without some of its blocks, cached ones."""
    victim = game.scheduler.running[0]
    blocks = table(game, victim)
    kept = [block for block in blocks if block.ref_cnt == 1][:2]
    assert any(block.block_hash for block in kept)
    blocks[:] = [block for block in blocks if block not in kept]
    game.scheduler.finish_requests(victim.request_id, RequestStatus.FINISHED_ABORTED)
    game.out.pop(victim.request_id), game.expected.pop(victim.request_id)
    return {block.block_id for block in kept}


def touch(game: Play) -> set[int]:
    """A prefix hit that nobody took: held by requests as well."""
    blocks = table(game, game.scheduler.running[-1])[:2]
    game.pool.touch(blocks)
    game.pool.touch(blocks)
    return {block.block_id for block in blocks}


def leaking(play: MakePlay, leak: Callable[[Play], set[int]], **kwargs: Any) -> tuple[Play, set[int]]:
    game = play(200, **kwargs)
    for _ in range(6):
        game.add(70, 60, 32)
    game.step(5)
    leaked = leak(game)
    assert set(game.audit()) == leaked
    game.step(2)
    return game, leaked


def later(game: Play, seconds: float) -> None:
    now = game.context.now()
    object.__setattr__(game.context, "now", lambda: now + seconds)


@IN_FLIGHT
@pytest.mark.parametrize("leak", [forget, withhold, touch])
def test_what_has_leaked_comes_back(play: MakePlay, leak: Callable[[Play], set[int]], in_flight: bool) -> None:
    game, leaked = leaking(play, leak, in_flight=in_flight)
    assert game.order("reclaim_orphans").code == "nothing"  # not old enough
    later(game, 31.0)
    assert game.order("reclaim_orphans", "try").effect["blocks"] == (0 if leak is touch else len(leaked))
    result = game.order("reclaim_orphans")
    assert result.code == "done", result
    assert result.effect["references"] == len(leaked) * (2 if leak is touch else 1)
    freed = 0 if leak is touch else len(leaked)
    assert result.effect["blocks"] == freed
    assert result.effect["after_free_blocks"] - result.effect["before_free_blocks"] == freed
    game.check()
    assert game.audit() == {}
    report = game.accounts.report()
    assert report is not None
    assert (report.orphaned, report.over_freed, report.exact) == (0, 0, True)
    assert game.order("reclaim_orphans").code == "nothing"
    game.finish()
    game.check_outputs()
    assert game.pool.get_num_free_blocks() == 199
    assert game.accounts.drift == 0


def test_at_rest_it_needs_no_restart(play: MakePlay) -> None:
    game, leaked = leaking(play, forget)
    game.finish()
    game.audit()
    later(game, 31.0)
    assert game.order("reclaim_orphans").effect["blocks"] == len(leaked)
    assert game.pool.get_num_free_blocks() == 199
    game.check()


def test_what_had_been_cached_is_forgotten(play: MakePlay) -> None:
    game, leaked = leaking(play, withhold)
    later(game, 31.0)
    game.order("reclaim_orphans")
    assert all(game.pool.blocks[block].block_hash is None for block in leaked)
    by_hash = game.pool.cached_block_hash_to_block
    held = [b for b in game.pool.blocks if b.block_hash is not None]
    assert all(by_hash.get_one_block(b.block_hash) is not None for b in held)
    game.finish()
    game.check_outputs()


def given_to_a_request(game: Play, leaked: set[int]) -> None:
    """Meanwhile a table has one of them."""
    table(game, game.scheduler.running[0]).append(game.pool.blocks[min(leaked)])


def deferred(game: Play, leaked: set[int]) -> None:
    """Meanwhile one of them waits for a step in flight."""
    game.scheduler.deferred_frees.append((10**9, [game.pool.blocks[min(leaked)]]))


def given_back(game: Play, leaked: set[int]) -> None:
    """Meanwhile the leak has mended itself in part."""
    game.pool.free_blocks([game.pool.blocks[min(leaked)]])


def queued(game: Play, leaked: set[int]) -> None:
    """One of them is in the free queue, with a reference: more is wrong than a leak."""
    game.pool.free_block_queue.append(game.pool.blocks[min(leaked)])


def over_freed(game: Play, _leaked: set[int]) -> None:
    """Elsewhere a block is freed under its request."""
    game.pool.free_blocks(table(game, game.scheduler.running[0])[:1])
    game.audit()


def connected(game: Play, _leaked: set[int]) -> None:
    """A connector might still write."""
    game.scheduler.connector = object()


@pytest.mark.parametrize("change", [given_to_a_request, deferred, given_back, queued, over_freed, connected])
def test_all_are_left_alone_where_one_thing_is_not_as_it_was(
    play: MakePlay, change: Callable[[Play, set[int]], None]
) -> None:
    game, leaked = leaking(play, forget)
    change(game, leaked)
    later(game, 31.0)
    before = picture(game)
    result = game.order("reclaim_orphans")
    assert result.code == "unsafe", result
    assert picture(game) == before
