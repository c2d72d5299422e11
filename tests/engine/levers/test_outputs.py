"""All levers at random moments: nobody's output changes, the books balance after each step, the pool ends empty."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.levers.remembering import MAX_STEPS, Play

MakePlay = Callable[..., Play]
IN_FLIGHT = pytest.mark.parametrize("in_flight", [False, True], ids=["one step at a time", "steps in flight"])

ORDERS: tuple[tuple[str, Callable[[random.Random], dict[str, Any]]], ...] = (
    ("watermark", lambda draw: {"ratio": draw.choice((0.1, 0.5, 0.9))}),
    ("active_cap", lambda draw: {"requests": draw.randrange(1, 12)}),
    ("active_cap", lambda draw: {"factor": 0.8}),
    ("batch_tokens", lambda draw: {"factor": draw.choice((0.1, 0.5))}),
    ("batch_tokens", lambda draw: {"tokens": draw.choice((16, 64))}),
    ("evict_idle", lambda draw: {"idle_seconds": 0.0, "turns": 0, "blocks": draw.choice((3, 1000))}),
    ("hold_hot", lambda draw: {"cycle_seconds": 1, "hold_milliseconds": 1000}),
    ("preempt", lambda draw: {"requests": draw.randrange(1, 5), "cap": draw.random() < 0.7}),
    ("pause", lambda draw: {}),
    ("reset_prefix", lambda draw: {"running": draw.random() < 0.7}),
    ("reclaim_orphans", lambda draw: {"age_seconds": 1.0}),
)


def run(play: Play, seed: int, *, levers: bool = True, disturb: Callable[[Play], None] | None = None) -> Counter[str]:
    """A load with shared prefixes in a pool that is too small for it; levers are pulled and let go between steps."""
    draw, seen = random.Random(seed), Counter[str]()
    in_force: dict[str, str] = {}
    now = [play.desk._clock()]
    play.desk._clock = lambda: now[0]
    object.__setattr__(play.context, "clock", lambda: now[0])
    for number in range(50):
        play.add(
            draw.randrange(20, 250), draw.randrange(5, 60), draw.choice((0, 64, 128)), tenant=f"t{number % 3}",
            session=f"s{number % 7}",
        )  # fmt: skip
        for _ in range(draw.randrange(5)):
            play.step()
            play.check()
            now[0] += 0.3
        if disturb is not None and number == 25:
            disturb(play)
        if levers:
            pull(play, draw, seen, in_force)
            play.check()
    for _ in range(MAX_STEPS):
        if not play.scheduler.requests:
            break
        if levers and draw.random() < 0.3:
            pull(play, draw, seen, in_force)
        now[0] += 0.3
        play.desk.tick()
        play.step()
        play.check()
    for lever, action in list(in_force.items()):
        play.order(lever, "undo", action)
    play.finish()
    return seen


def pull(play: Play, draw: random.Random, seen: Counter[str], in_force: dict[str, str]) -> None:
    lever, arguments = draw.choice(ORDERS)
    if lever in in_force and draw.random() < 0.8:
        play.order(lever, "undo", in_force.pop(lever))
        return
    result = play.order(lever, "apply", **arguments(draw))
    assert result.code in ("done", "nothing", "unsafe", "conflict"), result
    seen[f"{lever} {result.code}"] += 1
    if result.in_force:
        in_force[lever] = result.action


@IN_FLIGHT
def test_nobody_s_output_changes(play: MakePlay, in_flight: bool) -> None:
    total: Counter[str] = Counter()
    for seed in range(6):
        game = play(90, in_flight=in_flight)
        before = limits(game)
        total += run(game, seed)
        game.check_outputs()
        assert game.pool.get_num_free_blocks() == 89
        assert game.audit() == {}
        assert limits(game) == before
    never = {lever for lever, _ in ORDERS if not total[f"{lever} done"]}
    assert never == {"reclaim_orphans"}, "nothing leaks here; the others must all have been pulled"


def limits(game: Play) -> tuple[Any, ...]:
    scheduler = game.scheduler
    return (
        scheduler.max_num_active_reqs,
        scheduler.max_num_scheduled_tokens,
        scheduler.kv_cache_manager.watermark_blocks,
        scheduler.pause_state,
    )


@IN_FLIGHT
def test_the_twin_without_levers_has_the_same_outputs(play: MakePlay, in_flight: bool) -> None:
    game = play(90, in_flight=in_flight)
    run(game, 0, levers=False)
    game.check_outputs()


def corrupt_one_block(game: Play) -> None:
    """Overwrite what one running request has written."""
    for _ in range(50):
        running = [r for r in game.scheduler.running if r.num_output_tokens < r.max_tokens - 3]
        running = [r for r in running if r.num_computed_tokens > 16]
        if running:
            break
        game.step()
    table = game.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks[running[0].request_id]
    game.memory[table[0].block_id, 0] += 1


@IN_FLIGHT
def test_a_control_that_corrupts_is_noticed(play: MakePlay, in_flight: bool) -> None:
    game = play(90, in_flight=in_flight)
    run(game, 1, levers=False, disturb=corrupt_one_block)
    wrong = {request for request in game.out if game.out[request] != game.expected[request]}
    assert wrong
    assert len(wrong) < len(game.out)
