"""Put an idle engine to sleep: its weights go to host memory, its KV cache away; woken again when it is undone."""

from __future__ import annotations

from typing import Any

from engine_hooks.core.levers.arguments import need, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.patch import Patch
from engine_hooks.core.levers.sleep_worker import free
from engine_hooks.levers.base import Done, RefusedError
from engine_hooks.levers.orders import Arguments

LEVEL = 1  # weights are kept in host memory: from the other one an engine does not come back by itself


class Sleep:
    """No arguments. vLLM's own sleep of level 1, and only where nothing runs, waits or is in flight.

    The memory of the KV cache is given back, so nothing may be held and no connector may have registered it; cached
    prefixes would be hits on what is no more, so they are forgotten first. Meanwhile what comes is queued. Blocks the
    engine's thread for as long as the weights take to move. Waking needs the memory back: where a neighbour has taken
    it, it is tried again and again.
    """

    NAME = "sleep"

    def __init__(self, context: LeverContext) -> None:
        engine, scheduler = context.engine, context.scheduler
        need(engine, "sleep", "wake_up", "model_executor")
        self._executor: Any = engine.model_executor
        need(self._executor, "sleep", "wake_up", "is_sleeping", "collective_rpc")
        need(scheduler, "set_pause_state", "pause_state", "reset_prefix_cache")
        self._states: Any = type(scheduler.pause_state)
        if not all(hasattr(self._states, name) for name in ("UNPAUSED", "PAUSED_NEW")):
            raise RefusedError("unsupported", "this vLLM has no pause that lets what comes meanwhile wait")
        if hasattr(engine, "dp_group"):
            raise RefusedError("unsupported", "the ranks of this group step together and wake only together")
        model: Any = getattr(getattr(engine, "vllm_config", None), "model_config", None)
        if not getattr(model, "enable_sleep_mode", False):
            raise RefusedError("unsupported", "the engine was started without --enable-sleep-mode")
        self._engine, self._scheduler, self._view, self._guard = engine, scheduler, context.view, context.guard
        self._patches: list[Patch] = []
        self._ours = self._busy = False

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return how many cached blocks would be forgotten."""
        only(arguments)
        state = self._scheduler.pause_state
        if self._executor.is_sleeping:
            raise RefusedError("conflict", "it sleeps already")
        if state != self._states.UNPAUSED:
            raise RefusedError("conflict", f"somebody else has it paused: {state.name}")
        if getattr(self._scheduler, "connector", None) is not None:
            raise RefusedError("unsafe", "a connector may read or write the memory that would be given back")
        running, waiting = self._view.running_and_waiting()
        if running or waiting:
            raise RefusedError("unsafe", f"{running} requests run and {waiting} wait: drain it first")
        if self._scheduler.has_requests() or getattr(self._engine, "batch_queue", None):
            raise RefusedError("unsafe", "a step is in flight, or is yet to come: try again")
        held = self._view.held() + self._view.aside
        if held:
            raise RefusedError("unsafe", f"{held} blocks are held, by no request: what they hold would be gone")
        return {"hashes": len(getattr(self._view.pool, "cached_block_hash_to_block", ()))}

    def apply(self, arguments: Arguments) -> Done:
        """Forget, pause, sleep; undone by waking, unless another has woken it meanwhile."""
        effect = self.would(arguments)
        if not self._scheduler.reset_prefix_cache():
            raise RefusedError("unsafe", "vLLM has refused to forget what is cached")
        before = self._free()
        self._scheduler.set_pause_state(self._states.PAUSED_NEW)
        try:
            self._engine.sleep(LEVEL)
        except BaseException:
            self._wake()
            raise
        self._ours = True
        self._patches = [
            Patch(self._executor, name, self._another, self._guard, "lever_sleep") for name in ("sleep", "wake_up")
        ]
        return Done({**effect, **_both(before, self._free())}, self._undo, again=True)

    def _another(self, *_args: Any, **_kwargs: Any) -> None:
        if not self._busy:
            self._ours = False

    def _undo(self) -> dict[str, int | float]:
        woken, before = self._ours, self._free()
        if woken:
            self._busy = True
            try:
                self._wake()
            finally:
                self._busy = False
        self._ours = False
        for patch in self._patches:
            patch.remove()
        running, waiting = self._view.running_and_waiting()
        return {"woken": int(woken), "running": running, "waiting": waiting, **_both(before, self._free())}

    def _wake(self) -> None:
        """Wake it, and let in what has come. Whatever sleeps on has nothing let in."""
        if self._executor.is_sleeping:
            self._engine.wake_up()
        if not self._executor.is_sleeping:
            self._scheduler.set_pause_state(self._states.UNPAUSED)

    def _free(self) -> int | None:
        """Return the free bytes of all workers' devices; None where one can't tell."""
        rows: list[Any] = self._executor.collective_rpc(free)
        told = [row for row in rows if isinstance(row, int)]
        return sum(told) if told and len(told) == len(rows) else None


def _both(before: int | None, after: int | None) -> dict[str, int | float]:
    if before is None or after is None:
        return {}
    return {"before_free_bytes": before, "after_free_bytes": after}
