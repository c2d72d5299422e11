"""Putting requests back: who, when it is refused, and that no token is lost or comes twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.levers.remembering import Play

MakePlay = Callable[..., Play]
IN_FLIGHT = pytest.mark.parametrize("in_flight", [False, True], ids=["one step at a time", "steps in flight"])


def running(play: MakePlay, count: int = 6, **kwargs: Any) -> Play:
    game = play(200, requests=16, **kwargs)
    for number in range(count):
        game.add(60, 50, tenant="gold" if number >= count - 2 else "plain")
    game.step(8)
    assert len(game.scheduler.running) == count
    return game


@IN_FLIGHT
@pytest.mark.parametrize("again", range(3))
def test_no_token_is_lost_or_comes_twice(play: MakePlay, in_flight: bool, again: int) -> None:
    game = running(play, in_flight=in_flight)
    for _ in range(3):
        result = game.order("preempt", requests=3, cap=True)
        assert (result.code, result.effect.get("requests")) == ("done", 3), result
        assert result.effect["after_free_blocks"] > result.effect["before_free_blocks"]
        game.step(again)
        game.order("preempt", "undo", result.action)  # let in again in the very next step
        game.step(3)
        game.check()
    game.finish()
    game.check_outputs()


def test_the_newest_go_first_and_those_of_priority_last(play: MakePlay) -> None:
    game = running(play)
    names = [r.request_id for r in sorted(game.scheduler.running, key=lambda r: r.arrival_time)]
    game.order("preempt", requests=2, cap=True, priority={"gold": 1})
    assert [r.request_id for r in game.scheduler.running] == [*names[:2], *names[4:]]
    assert [r.request_id for r in game.scheduler.waiting] == names[2:4]  # the older is let in again first
    game.step(10)
    assert len(game.scheduler.running) == 4  # capped


def test_one_is_left_running_in_any_case(play: MakePlay) -> None:
    game = running(play)
    assert game.order("preempt", requests=50, cap=True).effect["requests"] == 5
    assert game.order("preempt", requests=1, cap=True).code == "conflict"


@pytest.mark.parametrize(
    ("lever", "arguments"), [("active_cap", {"requests": 4}), ("pause", {}), ("watermark", {"ratio": 0.9})]
)
def test_it_is_refused_until_admission_is_capped(play: MakePlay, lever: str, arguments: dict[str, Any]) -> None:
    game = running(play)
    refused = game.order("preempt", requests=2)
    assert refused.code == "unsafe"
    assert "4 requests" in refused.detail
    assert game.order(lever, **arguments).code == "done"
    before = len(game.scheduler.running)
    result = game.order("preempt", requests=2)
    assert (result.code, result.in_force) == ("done", False)
    game.step(5)
    assert len(game.scheduler.running) == before - 2
    game.check()


def test_a_watermark_that_they_could_pass_is_no_cap(play: MakePlay) -> None:
    game = running(play)
    assert game.order("watermark", ratio=0.1).code == "done"
    assert game.order("preempt", requests=2).code == "unsafe"


def test_without_a_way_to_drop_what_is_in_flight_it_is_refused(play: MakePlay) -> None:
    """As before 0.27: an older scheduler's method, with a step under way and without."""
    for in_flight, code in ((True, "unsafe"), (False, "done")):
        game = running(play, in_flight=in_flight)
        lever: Any = game.desk._levers["preempt"]
        lever._drops = False
        assert game.order("preempt", requests=2, cap=True).code == code
        game.finish()
        game.check_outputs()


@IN_FLIGHT
def test_a_reset_with_everything_running(play: MakePlay, in_flight: bool) -> None:
    game = running(play, in_flight=in_flight)
    result = game.order("reset_prefix", running=True)
    assert result.code == ("unsafe" if in_flight else "done")
    game.check()
    game.finish()
    game.check_outputs()
    assert game.order("reset_prefix").code == "done"
    assert game.order("reset_prefix").code == "nothing"


def test_a_reset_is_refused_where_vllm_would_raise_halfway(play: MakePlay) -> None:
    game = running(play)
    leaked = game.pool.get_new_blocks(1)
    before = [r.request_id for r in game.scheduler.running]
    assert game.order("reset_prefix", running=True).code == "unsafe"
    assert [r.request_id for r in game.scheduler.running] == before
    game.pool.free_blocks(leaked)
    assert game.order("reset_prefix", running=True).code == "done"
