"""Compaction on a real EngineCore over a worker that remembers: no output changes, all or none, refusals, growth."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine_hooks.core.compaction.between import HalfMovedError
from tests.engine.compaction.moving import BLOCK_BYTES, IN_FLIGHT, MakeMoving, Moving, busy

CYCLES = 100


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
