"""Sleep: only an idle engine, back by undo or by its lease, nobody's request lost, nothing read of what was unmapped.

EngineCore, its sleep and wake-up, the executor's book-keeping and the scheduler are vLLM's; only what the workers do on
a GPU is scripted: what sleeps has forgotten its KV cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine_hooks.core.levers.sleep import Sleep
from engine_hooks.levers.base import RefusedError
from engine_hooks.levers.desk import AGAIN_SECONDS
from tests.engine.levers.remembering import Play, RememberingExecutor

MakePlay = Callable[..., Play]
GIB = 1 << 30


class SleepyExecutor(RememberingExecutor):
    """Its worker's memory is lost while it sleeps; ``calls``: what was asked of it. ``taken``: a neighbour has it."""

    def _init_executor(self) -> None:
        super()._init_executor()
        self.calls: list[str] = []
        self.asleep = self.taken = self.broken = False

    def collective_rpc(
        self, method: Any, timeout: float | None = None, args: Any = (), kwargs: Any = None, non_block: bool = False
    ) -> Any:
        if callable(method):
            return [60 * GIB if self.asleep else 4 * GIB]
        if method == "sleep":
            assert kwargs == {"level": 1}
            self.calls.append(method)
            if self.broken:
                raise AssertionError("Memory usage increased after sleeping.")
            self.asleep = True
            self.worker.memory.clear()
        elif method == "wake_up":
            self.calls.append(method)
            if self.taken:
                raise RuntimeError("CUDA Error: out of memory")
            self.asleep = False
        return super().collective_rpc(method, timeout, args, kwargs, non_block)

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        assert not self.asleep or not scheduler_output.total_num_scheduled_tokens, "a step on memory that is not there"
        return super().execute_model(scheduler_output, non_block)


@pytest.fixture
def sleepy(play: MakePlay) -> tuple[Play, Any]:
    """An engine that has served, and is idle with a warm cache; with its executor."""
    game = play(executor=SleepyExecutor, sleepy=True)
    for _ in range(4):
        game.add(60, 20, 32)
    game.finish()
    game.step()  # workers are told of those that have ended
    return game, game.engine.model_executor


def test_an_idle_engine_sleeps_and_serves_what_came_meanwhile(sleepy: tuple[Play, Any]) -> None:
    game, executor = sleepy
    tried = game.order("sleep", "try")
    assert tried.code == "would"
    assert tried.effect["hashes"] > 0
    assert executor.calls == []
    result = game.order("sleep")
    assert (result.code, result.in_force) == ("done", True), result
    assert (executor.calls, executor.is_sleeping) == (["sleep"], True)
    assert (result.effect["before_free_bytes"], result.effect["after_free_bytes"]) == (4 * GIB, 60 * GIB)
    for _ in range(3):
        game.add(60, 20, 32)  # the prefix that was cached: a hit on it would read what is gone
    game.step(50)
    assert (len(game.scheduler.running), len(game.scheduler.waiting)) == (0, 3)

    undone = game.order("sleep", "undo", result.action)
    assert (undone.code, undone.effect["woken"], undone.effect["waiting"]) == ("undone", 1, 3)
    assert (executor.calls, executor.is_sleeping) == (["sleep", "wake_up"], False)
    game.finish()
    game.check_outputs()
    game.check()


def test_the_lease_of_an_agent_that_is_gone_wakes_it(sleepy: tuple[Play, Any]) -> None:
    game, executor = sleepy
    now = [game.desk._clock()]
    game.desk._clock = lambda: now[0]
    game.order("sleep")
    game.add(60, 20, 32)
    now[0] += 29.0
    assert game.desk.tick() == ()
    assert executor.is_sleeping
    now[0] += 2.0
    (ended,) = game.desk.tick()
    assert (ended.code, executor.is_sleeping) == ("expired", False)
    game.finish()
    game.check_outputs()


def test_it_is_woken_again_and_again_while_a_neighbour_has_the_memory(sleepy: tuple[Play, Any]) -> None:
    game, executor = sleepy
    now = [game.desk._clock()]
    game.desk._clock = lambda: now[0]
    action = game.order("sleep").action
    executor.taken = True
    game.add(60, 20, 32)
    failed = game.order("sleep", "undo", action)
    assert (failed.code, failed.in_force) == ("failed", False)
    assert "out of memory" in failed.detail
    game.step(5)  # nobody is let in to memory that is not there
    assert game.order("sleep").code == "conflict"
    for _ in range(3):
        now[0] += AGAIN_SECONDS
        assert [each.code for each in game.desk.tick()] == ["failed"]
    executor.taken = False
    now[0] += AGAIN_SECONDS
    assert [each.ok for each in game.desk.tick()] == [True]
    assert not executor.is_sleeping
    assert game.desk.tick() == ()
    game.finish()
    game.check_outputs()
    assert set(game.reporter._guard.errors) == {"lever_sleep"}


def test_a_worker_that_fails_leaves_the_engine_serving(sleepy: tuple[Play, Any]) -> None:
    game, executor = sleepy
    executor.broken = True
    result = game.order("sleep")
    assert (result.code, result.in_force) == ("failed", False)
    game.add(60, 20, 32)
    game.finish()
    game.check_outputs()


def test_somebody_elses_waking_stands(sleepy: tuple[Play, Any]) -> None:
    game, executor = sleepy
    action = game.order("sleep").action
    game.engine.wake_up()
    game.engine.sleep(1)  # and it is theirs from now on
    undone = game.order("sleep", "undo", action)
    assert (undone.code, undone.effect["woken"], executor.is_sleeping) == ("undone", 0, True)
    refused = game.order("sleep")
    assert (refused.code, refused.detail) == ("conflict", "it sleeps already")
    game.engine.wake_up()


@pytest.mark.parametrize("waiting", [False, True])
def test_never_with_requests(play: MakePlay, waiting: bool) -> None:
    game = play(executor=SleepyExecutor, sleepy=True, requests=1)
    game.add(60, 200)
    game.step(3)
    if waiting:
        game.add(60, 20)
        game.engine.abort_requests([game.scheduler.running[0].request_id])
        game.out.pop(next(iter(game.out))), game.expected.pop(next(iter(game.expected)))
    result = game.order("sleep")
    assert (result.code, game.engine.model_executor.calls) == ("unsafe", [])
    assert "drain it first" in result.detail
    game.finish()
    game.check_outputs()


def test_blocks_that_no_request_holds_keep_it_awake(sleepy: tuple[Play, Any]) -> None:
    game, executor = sleepy
    leaked = game.pool.get_new_blocks(2)
    result = game.order("sleep")
    assert (result.code, executor.calls) == ("unsafe", [])
    assert "2 blocks are held" in result.detail
    game.pool.free_blocks(leaked)
    assert game.order("sleep").code == "done"


def test_an_engine_that_was_started_without_it_says_so(play: MakePlay) -> None:
    game = play()
    row = next(row for row in game.desk.rows() if row.lever == "sleep")
    assert (row.ok, row.reason) == (False, "the engine was started without --enable-sleep-mode")
    assert game.order("sleep").code == "unsupported"
    game.engine.dp_group = object()
    game.engine.vllm_config.model_config.enable_sleep_mode = True
    with pytest.raises(RefusedError, match="wake only together"):
        Sleep(game.context)
    del game.engine.dp_group
