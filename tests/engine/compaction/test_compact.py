"""Compaction on a real EngineCore over a worker that remembers: no output changes, all or none, refusals, growth."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine_hooks.core.compaction.between import HalfMovedError
from tests.engine.compaction.moving import BLOCK_BYTES, Moving

MakeMoving = Callable[..., Moving]
IN_FLIGHT = pytest.mark.parametrize("in_flight", [False, True], ids=["one step at a time", "steps in flight"])
CYCLES = 100


def busy(game: Moving, requests: int = 6, tokens: int = 60) -> None:
    """Requests that run, two of three with a prefix in common, at both ends of the pool."""
    queue = game.pool.free_block_queue
    free = queue.popleft_n(queue.num_free_blocks)
    random.Random(5).shuffle(free)
    queue.append_n(free)
    for number in range(requests):
        game.add(70 + 7 * number, tokens, shared=64 if number % 3 else 0)
        game.step(2)


def cycles(game: Moving, wanted: int, seed: int = 0) -> Counter[str]:
    """A load under which the pool is shrunk and grown at random so many times; the law is checked after each step."""
    draw, seen, action = random.Random(seed), Counter[str](), ""
    while seen["done"] < wanted or action:
        if len(game.scheduler.requests) < 12:
            game.add(
                draw.randrange(20, 200),
                draw.randrange(3, 40),
                draw.choice((0, 32, 96)),
                session=f"s{draw.randrange(5)}",
            )
        game.step(draw.randrange(1, 4))
        if action:
            state = game.counts.state
            if state == "shrunk":
                assert game.audit() == {}
                seen["audited"] += 1
            if draw.random() < 0.25:
                assert game.order("compact", "undo", action).code == "undone"
                action = ""
            continue
        held = game.reporter._view.held()
        result = game.order("compact", to_blocks=draw.randrange(held + 1, max(held + 2, 150)), idle_seconds=0.5)
        assert result.code in ("done", "unsafe", "nothing"), result
        seen[result.code] += 1
        action = result.action if result.ok else ""
        if seen.total() > 60 * wanted:
            raise AssertionError(seen)
    game.finish()
    game.until(lambda: not game.offline)
    return seen


@IN_FLIGHT
def test_a_hundred_cycles_change_no_output(moving: MakeMoving, in_flight: bool) -> None:
    game = moving(in_flight=in_flight)
    seen = cycles(game, CYCLES)
    game.check_outputs()
    assert seen["audited"] > CYCLES // 10
    assert game.counts.moved > 100
    assert game.counts.grown > game.counts.moved
    assert game.audit() == {}
    assert game.pool.num_gpu_blocks == 200


@IN_FLIGHT
@pytest.mark.parametrize("left_out", ["copy", "rewrite"])
def test_a_control_without_the_copy_or_the_tables_is_noticed(
    moving: MakeMoving, in_flight: bool, left_out: str
) -> None:
    game = moving(in_flight=in_flight)
    game.executor.skips.add(left_out)
    cycles(game, 10)
    assert game.out != game.expected


@IN_FLIGHT
def test_held_blocks_go_below_the_line_and_all_above_goes_offline(moving: MakeMoving, in_flight: bool) -> None:
    game = moving(in_flight=in_flight)
    busy(game)
    held = game.reporter._view.held()
    tried = game.order("compact", "try", to_blocks=80)
    assert tried.code == "would"
    assert tried.effect["move_blocks"] > 0
    assert (tried.effect["before_blocks"], tried.effect["after_blocks"], tried.effect["offline_blocks"]) == (
        199,
        80,
        119,
    )
    assert tried.effect["release_bytes"] == 119 * BLOCK_BYTES
    assert game.offline == 0, "a try changes nothing"
    assert game.order("compact", to_blocks=80).code == "done"
    game.until(lambda: game.counts.state == "shrunk")
    assert game.offline == 119
    assert game.reporter._view.capacity() == 80
    assert all(not block.ref_cnt for block in game.pool.blocks[81:])
    assert game.reporter._view.held() >= held
    assert game.counts.released_bytes == 77
    assert game.audit() == {}
    game.finish()
    game.check_outputs()
    assert game.pool.get_usage() == 0.0
    assert game.scheduler.reset_prefix_cache(), "vLLM's own reset counts what is there now"


def test_fewest_copies_shared_blocks_once(moving: MakeMoving) -> None:
    game = moving()
    busy(game)
    above = {block.block_id for block in game.pool.blocks[81:] if block.ref_cnt}
    assert any(game.pool.blocks[block].ref_cnt > 1 for block in above), "a shared one is among them"
    game.order("compact", to_blocks=80)
    game.until(lambda: game.counts.state == "shrunk")
    copied = [pair for name, args in game.executor.calls if name == "copy" for pair in args[0]]
    sources = [source for source, _ in copied]
    assert len(sources) == len(set(sources))
    assert all(copy <= 80 < source for source, copy in copied)
    assert len(copied) == game.counts.moved + game.counts.moved_idle


def test_nothing_is_wrapped_before_and_after(moving: MakeMoving) -> None:
    game = moving()
    step, coordinator = game.engine.step_fn, game.scheduler.kv_cache_manager.coordinator
    assert game.order("compact", to_blocks=80).code == "done"
    game.until(lambda: game.counts.state == "shrunk")
    assert game.engine.step_fn is not step
    game.order("compact", "undo", "a1")
    game.until(lambda: game.counts.state == "idle")
    assert game.engine.step_fn is step
    assert "get_num_blocks_to_allocate" not in vars(coordinator)
    assert not game.context.at_rest.run(), "no wake-up is to come for it"


def test_what_is_cached_and_used_last_is_kept(moving: MakeMoving) -> None:
    game = moving()
    busy(game, tokens=3)
    game.finish()
    kept = [block.block_hash for block in game.pool.blocks if block.block_hash is not None]
    assert kept
    game.order("compact", to_blocks=100)
    game.until(lambda: game.counts.state == "shrunk")
    assert game.counts.dropped == 0, "the free queue begins with blocks that hold nothing: enough to lose those"
    assert game.counts.moved_idle > 0
    left = {block.block_hash for block in game.pool.blocks if block.block_hash is not None}
    assert left == set(kept)
    before = dict(game.out)
    request = game.add(40, 3)
    assert request.request_id not in before
    game.finish()
    game.check_outputs()


def test_what_nobody_will_ask_for_is_dropped_and_counted(moving: MakeMoving) -> None:
    game = moving()
    busy(game, tokens=3)
    game.finish()
    now = game.context.now()
    object.__setattr__(game.context, "now", lambda: now + 1000.0)
    game.order("compact", to_blocks=100, idle_seconds=10.0)
    game.until(lambda: game.counts.state == "shrunk")
    assert game.counts.moved_idle == 0
    assert game.counts.dropped > 0


@IN_FLIGHT
def test_what_fails_before_the_tables_leaves_all_as_it_was(moving: MakeMoving, in_flight: bool) -> None:
    game = moving(in_flight=in_flight)
    busy(game)
    game.executor.fails["copy"] = {"error": "no"}
    game.order("compact", to_blocks=80)
    game.until(lambda: game.counts.state in ("stopped", "releasing"))
    assert game.counts.moved == 0
    assert not any(name == "rewrite" for name, _ in game.executor.calls)
    game.step()
    assert "worker 0: no" in game.counts.reason
    game.finish()
    game.check_outputs()


@IN_FLIGHT
@pytest.mark.parametrize(
    "failure", [{"error": "no"}, RuntimeError("a worker died"), SystemExit()], ids=["said", "raised", "ended"]
)
def test_an_engine_that_fails_behind_the_point_of_no_return_takes_no_step(
    moving: MakeMoving, in_flight: bool, failure: Any
) -> None:
    game = moving(in_flight=in_flight)
    busy(game)
    game.executor.fails["rewrite"] = failure
    game.order("compact", to_blocks=80)
    with pytest.raises((HalfMovedError, SystemExit)):
        Moving.__mro__[1].step(game, 100)
    told = {request: list(tokens) for request, tokens in game.out.items()}
    for _ in range(3):
        with pytest.raises(HalfMovedError):
            game.engine.step_fn()
    assert game.out == told
    assert all(game.expected[request][: len(tokens)] == tokens for request, tokens in told.items())


def test_the_twin_that_does_not_fail_goes_on(moving: MakeMoving) -> None:
    game = moving()
    busy(game)
    game.order("compact", to_blocks=80)
    game.finish()
    game.check_outputs()


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


def leak(game: Moving) -> None:
    game.pool.get_new_blocks(1)
    game.audit()


REFUSED: dict[str, tuple[Callable[[Moving], Any], dict[str, Any], str, str]] = {
    "a connector": (lambda game: setattr(game.scheduler, "connector", object()), {}, "unsafe", "connector"),
    "a leak": (leak, {}, "unsafe", "audit"),
    "another lever": (lambda game: game.order("pause"), {}, "conflict", "in force: pause"),
    "held blocks": (busy, {"to_blocks": 30}, "unsafe", "pressure"),
    "a refusal": (lambda game: game.context.taps.refusals.update(x=None), {}, "unsafe", "pressure"),
    "nothing": (lambda _game: None, {"to_blocks": 199}, "nothing", "199 blocks"),
    "two ways": (lambda _game: None, {"to_blocks": 50, "free_bytes": 1}, "bad_argument", "one of"),
    "no way": (lambda _game: None, {"idle_seconds": 3}, "bad_argument", "one of"),
    "a worker": (lambda game: game.executor.fails.update(look={"error": "V2"}), {}, "unsupported", "V2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_have_reasons_and_change_nothing(moving: MakeMoving, case: str) -> None:
    prepare, arguments, code, reason = REFUSED[case]
    game = moving()
    prepare(game)
    for op in ("try", "apply"):
        result = game.order("compact", op, **(arguments or {"to_blocks": 100}))
        assert (result.code, reason in result.detail) == (code, True), result
    assert game.offline == 0
    assert game.counts.state == "idle"


def test_what_may_still_write_is_waited_for_and_not_for_ever(moving: MakeMoving) -> None:
    game = moving()
    busy(game)
    game.order("compact", to_blocks=80)
    blocks = game.pool.get_new_blocks(1)
    game.scheduler.deferred_frees.append((0, blocks))
    game.step(3)
    assert game.offline == 0
    game.scheduler.deferred_frees.clear()
    game.pool.free_blocks(blocks)
    game.until(lambda: game.counts.state == "shrunk")
    game.finish()
    game.check_outputs()


def test_an_engine_without_the_lever_in_its_environment_pays_nothing(moving: MakeMoving) -> None:
    game = moving(allowed="")
    assert game.order("compact", to_blocks=80).code == "not_allowed"
    assert game.order("compact", "try", to_blocks=80).code == "would"
    assert game.lever._releases is None
    assert game.reporter._observers["compaction"].section(0.0) is None


def test_what_it_has_done_is_in_the_detail(moving: MakeMoving) -> None:
    game = moving()
    busy(game)
    game.order("compact", to_blocks=80)
    game.until(lambda: game.counts.state == "shrunk")
    row = game.reporter._observers["compaction"].section(0.0)
    assert (row.state, row.offline, row.released_bytes) == ("shrunk", 119, 77)
    assert row.moved_total > 0
    assert sum(row.pause_seconds.counts) > 0


def test_an_order_says_which_it_is_and_from_where_it_counts(moving: MakeMoving) -> None:
    game = moving()
    busy(game)
    assert game.reporter._observers["compaction"].section(0.0).orders_total == 0
    first = game.order("compact", action="x", to_blocks=120)
    assert (first.effect["orders_total"], first.effect["moved_blocks_total"]) == (1, 0)
    game.until(lambda: game.counts.state == "shrunk")
    row = game.reporter._observers["compaction"].section(0.0)
    assert row.orders_total == 1
    moved, dropped = row.moved_total + row.moved_idle_total, row.dropped_total
    assert moved > 0
    second = game.order("compact", "amend", "x", to_blocks=80)
    assert (second.effect["moved_blocks_total"], second.effect["dropped_blocks_total"]) == (moved, dropped)
    assert second.effect["orders_total"] == game.counts.orders > 1
    game.order("compact", "undo", "x")
    assert game.reporter._observers["compaction"].section(0.0).orders_total > second.effect["orders_total"]
