"""The levers on admission and on the size of a step: effect, exact undo, expiry, refusal."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest

from engine_hooks.core.levers.knobs import Knob
from engine_hooks.core.levers.pause import Pause
from engine_hooks.levers.desk import build
from tests.engine.levers.remembering import Play, picture

MakePlay = Callable[..., Play]

THROTTLES: list[tuple[str, dict[str, Any]]] = [
    ("watermark", {"ratio": 0.5}),
    ("watermark", {"blocks": 30}),
    ("active_cap", {"requests": 3}),
    ("batch_tokens", {"tokens": 128}),
    ("batch_tokens", {"factor": 0.5}),
    ("hold_hot", {}),
    ("pause", {}),
    ("preempt", {"requests": 2, "cap": True}),
]


def busy(play: MakePlay, **kwargs: Any) -> Play:
    """Eight requests that run and two that wait: in every run the same."""
    game = play(**{"requests": 8, "blocks": 120, **kwargs})
    for _ in range(10):
        game.add(60, 40, 32)
    game.step(4)
    assert len(game.scheduler.running) == 8
    return game


@pytest.mark.parametrize(("lever", "arguments"), THROTTLES)
def test_undo_restores_exactly_what_was_there(play: MakePlay, lever: str, arguments: dict[str, Any]) -> None:
    game = busy(play)
    before = picture(game)
    result = game.order(lever, **arguments)
    assert (result.code, result.in_force) == ("done", True), result
    changed = picture(game)
    assert changed != before
    assert game.order(lever, "undo", result.action).code == "undone"
    after = picture(game)
    if lever == "preempt":  # the victims themselves are put back, that is what it is for
        assert {key: after[key] for key in ("limits", "methods")} == {key: before[key] for key in ("limits", "methods")}
    else:
        assert after == before
    game.finish()
    game.check()
    game.check_outputs()


@pytest.mark.parametrize(("lever", "arguments"), THROTTLES)
def test_a_lease_that_nobody_renews_ends_by_itself(play: MakePlay, lever: str, arguments: dict[str, Any]) -> None:
    game = busy(play)
    before = picture(game)
    now = [game.desk._clock()]
    game.desk._clock = lambda: now[0]
    action = game.order(lever, **arguments).action
    now[0] += 29.0
    assert game.desk.tick() == ()
    now[0] += 2.0
    (ended,) = game.desk.tick()
    assert (ended.action, ended.code) == (action, "expired")
    after = picture(game)
    assert (after["limits"], after["methods"]) == (before["limits"], before["methods"])
    game.finish()
    game.check_outputs()


@pytest.mark.parametrize(
    ("lever", "arguments", "code"),
    [
        ("watermark", {"ratio": 0.95}, "bad_argument"),
        ("watermark", {"ratio": 0.5, "blocks": 3}, "bad_argument"),
        ("watermark", {"ratoi": 0.5}, "bad_argument"),
        ("watermark", {"blocks": 0}, "nothing"),
        ("active_cap", {"requests": 0}, "bad_argument"),
        ("active_cap", {"requests": 8}, "nothing"),
        ("active_cap", {"factor": 0.5}, "nothing"),  # the floor of 16 is above what may run
        ("batch_tokens", {"factor": 1.0}, "nothing"),
        ("batch_tokens", {}, "bad_argument"),
        ("hold_hot", {"blocks": 101}, "bad_argument"),
        ("preempt", {"requests": 2}, "unsafe"),  # admission is open
        ("preempt", {"requests": 0}, "bad_argument"),
        ("preempt", {"requests": 1, "cap": 1}, "bad_argument"),
        ("reset_prefix", {}, "unsafe"),
        ("reclaim_orphans", {}, "nothing"),
        ("evict_idle", {"turns": 9}, "bad_argument"),
        ("evict_idle", {"priority": "gold"}, "bad_argument"),
        ("trim", {}, "unsupported"),
        ("end_zombies", {}, "unsupported"),
        ("reclaim_delayed", {}, "unsupported"),
    ],
)
def test_a_refusal_leaves_everything_as_it_was(
    play: MakePlay, lever: str, arguments: dict[str, Any], code: str
) -> None:
    game = busy(play)
    before = picture(game)
    for op in ("try", "apply"):
        result = game.order(lever, op, **arguments)
        assert (result.code, result.ok, result.in_force) == (code, False, False), result
        assert result.detail
        assert picture(game) == before


@pytest.mark.parametrize(("lever", "arguments"), THROTTLES)
def test_trying_changes_nothing(play: MakePlay, lever: str, arguments: dict[str, Any]) -> None:
    game = busy(play)
    before = picture(game)
    assert game.order(lever, "try", **arguments).code == "would"
    assert picture(game) == before


def test_levers_that_nobody_allows_cost_nothing(play: MakePlay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a wrapper more than without them, and none is obeyed."""
    game = play(allowed="")
    monkeypatch.setattr("engine_hooks.core.reporter.LEVERS", ())
    without = play(allowed="")
    for of in ("scheduler", "pool", "scheduler.kv_cache_manager", "engine"):
        assert set(vars(attrgetter(of)(game))) == set(vars(attrgetter(of)(without)))
    assert game.scheduler.schedule.__name__ == without.scheduler.schedule.__name__ == "schedule"
    assert not hasattr(game.scheduler.schedule, "__wrapped__")
    assert game.order("watermark", ratio=0.5).code == "not_allowed"


def test_the_watermark_keeps_waiting_requests_out_and_not_running_ones(play: MakePlay) -> None:
    game = busy(play)
    game.order("watermark", ratio=0.9)
    for _ in range(3):
        game.add(100, 10)
    running = {r.request_id for r in game.scheduler.running}
    game.step(20)
    assert {r.request_id for r in game.scheduler.running} <= running
    game.finish()  # one is let in where nothing else runs
    game.check_outputs()


def test_the_cap_is_a_fifth_lower_each_time_and_never_below_its_floor(play: MakePlay) -> None:
    game = play(500, requests=64)
    for _ in range(64):
        game.add(30, 60)
    game.step(3)
    caps = []
    action = ""
    for _ in range(8):
        result = game.order("active_cap", "amend" if action else "apply", action or None, factor=0.8)
        action = result.action
        caps.append(result.effect["after_requests"])
        assert result.code == "done"
        while len(game.scheduler.running) > caps[-1]:
            newest = game.scheduler.running[-1].request_id
            game.engine.abort_requests([newest])
            game.out.pop(newest), game.expected.pop(newest)
    assert caps[:4] == [51, 40, 32, 25]
    assert caps[-1] == 16
    game.finish()
    game.check_outputs()


def test_small_steps_starve_nobody_whoever_comes_later(play: MakePlay) -> None:
    """The order is given while one request runs; later there are fifty, each with its token in each step."""
    game = play(900, requests=64)
    game.add(20, 300)
    game.step(2)
    assert game.order("batch_tokens", tokens=16).effect["after_tokens"] == 32
    for _ in range(60):
        game.add(20, 150)
    before: dict[str, int] = {}
    most = 0
    for _ in range(200):
        running = len(game.scheduler.running)
        game.step()
        limit = game.scheduler.max_num_scheduled_tokens
        assert limit % 16 == 0
        assert limit >= running + 16, "no room for a block of anybody's prompt"
        assert limit < running + 48
        decoding = {r.request_id: r.num_output_tokens for r in game.scheduler.running if r.num_output_tokens}
        stuck = {r for r, tokens in decoding.items() if before.get(r) == tokens}
        assert stuck == set(), "a request that decodes got no token in this step"
        before = decoding
        most = max(most, len(before))
    assert most > 50
    game.finish()
    game.check_outputs()


def test_a_paused_engine_takes_nothing_new_and_then_goes_on(play: MakePlay) -> None:
    game = busy(play)
    action = game.order("pause").action
    for _ in range(300):
        game.step()
    assert game.scheduler.running == []
    assert len(game.scheduler.waiting) == 2
    assert game.order("pause", "undo", action).effect["resumed"] == 1
    game.finish()
    game.check_outputs()


def test_a_pause_of_somebody_else_is_neither_taken_nor_ended(play: MakePlay) -> None:
    game = busy(play)
    states = type(game.scheduler.pause_state)
    game.scheduler.set_pause_state(states.PAUSED_NEW)
    assert game.order("pause").code == "conflict"
    game.scheduler.set_pause_state(states.UNPAUSED)
    action = game.order("pause").action
    game.scheduler.set_pause_state(states.PAUSED_NEW)  # a person, by the route of vLLM
    assert game.order("pause", "undo", action).effect["resumed"] == 0
    assert game.scheduler.pause_state == states.PAUSED_NEW


def test_ranks_that_step_together_are_not_paused_one_by_one(play: MakePlay) -> None:
    scheduler = play().scheduler
    together: Any = SimpleNamespace(scheduler=scheduler, engine=SimpleNamespace(dp_group=1), view=None, guard=None)
    levers, unsupported = build([("pause", lambda: Pause(together))])
    assert levers == {}
    assert "step together" in unsupported["pause"]
    alone: Any = SimpleNamespace(scheduler=scheduler, engine=SimpleNamespace(), view=None, guard=None)
    assert build([("pause", lambda: Pause(alone))])[1] == {}


def test_two_levers_on_one_number_end_in_any_order() -> None:
    class Engine:
        limit = 1000

    for order in (("a", "b"), ("b", "a")):
        engine = Engine()
        knob = Knob(engine, "limit", min)
        knob.ask("a", 700)
        knob.ask("b", 500)
        assert engine.limit == 500
        knob.drop(order[0])
        assert engine.limit == (500 if order[0] == "a" else 700)
        knob.drop(order[1])
        assert engine.limit == 1000


def test_what_another_sets_meanwhile_is_what_it_goes_back_to() -> None:
    class Engine:
        limit = 1000

    engine = Engine()
    knob = Knob(engine, "limit", min)
    knob.ask("a", 700)
    engine.limit = 900
    knob.ask("b", 500)
    assert engine.limit == 500
    knob.drop("a")
    knob.drop("b")
    assert engine.limit == 900
