"""How small the pool is made and how it grows back: by need, by order, by lease; on a real EngineCore."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.compaction.moving import IN_FLIGHT, MakeMoving, busy


@IN_FLIGHT
def test_a_request_that_needs_more_gets_it_before_it_is_refused(moving: MakeMoving, in_flight: bool) -> None:
    game = moving(in_flight=in_flight)
    game.order("compact", to_blocks=30)
    game.until(lambda: game.counts.state == "shrunk")
    game.add(900, 5)
    game.step(2)
    assert game.counts.demanded > 0
    assert not game.context.taps.refusals
    assert game.scheduler.running, "it was let in at once"
    game.finish()
    game.check_outputs()
    assert game.counts.demanded < 169, "no more than was needed, and some"


def test_a_pool_that_has_grown_back_by_itself_can_still_be_let_go(moving: MakeMoving) -> None:
    game = moving(70)
    game.order("compact", action="x", to_blocks=30)
    game.until(lambda: game.counts.state == "shrunk")
    game.add(900, 5)
    game.until(lambda: game.counts.state == "idle")
    assert game.order("compact", "undo", "x").code == "undone"
    assert game.order("compact", action="y", to_blocks=63).code in ("done", "unsafe")
    game.finish()
    game.check_outputs()


def test_memory_that_is_not_there_keeps_the_pool_small_and_kills_nobody(moving: MakeMoving) -> None:
    game = moving()
    game.order("compact", to_blocks=40)
    game.until(lambda: game.counts.state == "shrunk")
    game.executor.fails["touch"] = {"error": "MemoryError: 9 bytes are needed, 8 are to be had"}
    game.add(900, 5)
    game.step(3)
    assert game.offline == 159
    assert "memory" in game.counts.reason
    del game.executor.fails["touch"]
    game.now += 2.0
    game.finish()
    game.check_outputs()


def test_a_lease_that_nobody_renews_grows_it_back(moving: MakeMoving) -> None:
    game = moving()
    game.order("compact", to_blocks=60)
    game.until(lambda: game.counts.state == "shrunk")
    game.now += 31.0
    game.until(lambda: game.counts.state == "idle")
    assert game.offline == 0


def test_other_arguments_shrink_it_further_or_let_a_part_back(moving: MakeMoving) -> None:
    game = moving()
    game.order("compact", action="x", to_blocks=120)
    game.until(lambda: game.counts.state == "shrunk")
    assert game.order("compact", "amend", "x", to_blocks=60).code == "done"
    game.until(lambda: game.counts.state == "shrunk")
    assert game.reporter._view.capacity() == 60
    assert game.order("compact", "amend", "x", to_blocks=150).code == "done"
    game.until(lambda: game.counts.state == "shrunk")
    assert game.reporter._view.capacity() == 150


def test_another_size_makes_nothing_come_back_that_goes_again(moving: MakeMoving) -> None:
    game = moving()
    game.order("compact", action="x", to_blocks=120)
    game.until(lambda: game.counts.state == "shrunk")
    game.executor.calls.clear()
    changed = game.order("compact", "amend", "x", to_blocks=60)
    assert changed.effect["before_blocks"] == 120
    game.until(lambda: game.counts.state == "shrunk")
    assert (game.offline, game.counts.grown) == (139, 0)
    assert "touch" not in {name for name, _ in game.executor.calls}


@pytest.mark.parametrize(
    "arguments", [{"to_blocks": 120}, {"to_blocks": 1}, {"to_blocks": -1}, {"to_blocks": 199}, {"to": 60}, {}]
)
def test_a_change_that_is_refused_leaves_the_pool_as_small_as_it_is(
    moving: MakeMoving, arguments: dict[str, Any]
) -> None:
    """As when the same order is given twice."""
    game = moving()
    game.order("compact", action="x", to_blocks=120)
    game.until(lambda: game.counts.state == "shrunk")
    refused = game.order("compact", "amend", "x", **arguments)
    assert (refused.ok, refused.in_force) == (False, True)
    game.now += 5.0
    game.reporter.on_wake()
    assert (game.offline, game.counts.state, game.counts.orders) == (79, "shrunk", 1)
    assert game.order("compact", "undo", "x").code == "undone"
    game.until(lambda: game.counts.state == "idle")
    assert game.offline == 0


@IN_FLIGHT
def test_a_larger_size_is_reached_that_is_ordered_while_a_smaller_one_is_under_way(
    moving: MakeMoving, in_flight: bool
) -> None:
    game = moving(in_flight=in_flight)
    busy(game)
    game.order("compact", action="x", to_blocks=75)
    game.until(lambda: game.counts.state == "moving" and game.reporter._view.capacity() < 150)
    assert game.compactor.under_way
    assert game.compactor.tail.flags.find(1, 0, 111) >= 0, "blocks that the larger pool is to have are out already"
    assert game.order("compact", "amend", "x", to_blocks=110).code == "done"
    game.until(lambda: game.counts.state == "shrunk")
    assert (game.offline, game.reporter._view.capacity(), game.compactor.under_way) == (89, 110, False)
    assert game.compactor.tail.flags.find(1, 0, 111) < 0
    assert game.audit() == {}
    game.finish()
    game.check_outputs()


def test_memory_that_blocks_would_need_to_come_back_stops_a_change_and_kills_nobody(moving: MakeMoving) -> None:
    game = moving()
    busy(game)
    game.order("compact", action="x", to_blocks=75)
    game.until(lambda: game.counts.state == "moving" and game.reporter._view.capacity() < 150)
    game.executor.fails["touch"] = {"error": "MemoryError: no"}
    assert game.order("compact", "amend", "x", to_blocks=110).code == "done"
    game.until(lambda: game.counts.state == "stopped")
    assert "MemoryError" in game.counts.reason
    del game.executor.fails["touch"]
    assert game.order("compact", "undo", "x").code == "undone"
    game.until(lambda: game.counts.state == "idle")
    game.finish()
    game.check_outputs()


def test_a_try_says_how_many_cached_blocks_a_smaller_pool_has_no_room_for(moving: MakeMoving) -> None:
    game = moving()
    for number in range(12):
        game.add(96 + number, 4, session=f"s{number}")
    game.finish()
    cached = len([1 for block in game.pool.blocks if block.block_hash is not None])
    assert cached > 60
    effect = game.order("compact", "try", to_blocks=50).effect
    assert (effect["move_idle_blocks_at_most"] <= 50, effect["drop_idle_blocks_at_least"]) == (True, cached - 50)
    lost = game.counts.dropped
    game.order("compact", to_blocks=50)
    game.until(lambda: game.counts.state == "shrunk")
    assert game.counts.dropped - lost >= cached - 50
    assert game.counts.moved_idle <= 50


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"to_blocks": 1}, "pressure: of 199 blocks 1 would be left; with 0 held it must be 2 at least"),
        ({"free_bytes": 199 * 32_768}, "pressure: of 199 blocks 0 would be left; with 0 held it must be 2 at least"),
        ({"free_bytes": 1 << 60}, "pressure: that is more than the 199 blocks that the pool came up with"),
        ({"to_blocks": 500}, "the pool came up with 199 blocks"),
        ({"to_blocks": -1}, "to_blocks: -1: must be a number in 1..1099511627776"),
        ({"to_blocks": "x"}, "to_blocks: 'x': must be a number in 1..1099511627776"),
    ],
)
def test_absurd_sizes_are_refused_in_words_that_hold(moving: MakeMoving, arguments: dict[str, Any], told: str) -> None:
    assert moving().order("compact", **arguments).detail == told
