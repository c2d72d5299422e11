"""Forget all cached prefixes, as vLLM's own reset does; looked at beforehand, because that one fails halfway."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

from engine_hooks.core.levers.arguments import flag, need, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.levers.base import Done, RefusedError
from engine_hooks.levers.orders import Arguments


class ResetPrefix:
    """Argument: ``running``: put all running requests back first; they are let in again at once.

    Without it vLLM refuses while any block is held. With it vLLM preempts everything and only then raises if a block is
    still held by another (a delayed free, a leak): so each block must be explained by the tables of what runs.
    Frees no capacity: cached blocks are free ones.
    """

    NAME = "reset_prefix"

    def __init__(self, context: LeverContext) -> None:
        scheduler = context.scheduler
        need(scheduler, "reset_prefix_cache")
        need(context.view.pool, "cached_block_hash_to_block")
        if not getattr(context.view.pool, "enable_caching", False):
            raise RefusedError("unsupported", "prefix caching is off")
        self._resets_running = (
            "reset_running_requests" in inspect.signature(type(scheduler).reset_prefix_cache).parameters
        )
        self._engine, self._scheduler, self._view = context.engine, scheduler, context.view

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return how many hashes would be forgotten, and how many requests put back."""
        only(arguments, "running")
        held = self._view.held() + self._view.aside
        if flag(arguments, "running"):
            self._check_running()
        elif held:
            raise RefusedError("unsafe", f"{held} blocks are held: vLLM resets only when none is")
        hashes = len(self._view.pool.cached_block_hash_to_block)
        running = len(self._scheduler.running) if flag(arguments, "running") else 0
        if not hashes and not running:
            raise RefusedError("nothing", "nothing is cached")
        return {"hashes": hashes, "requests": running}

    def apply(self, arguments: Arguments) -> Done:
        """Reset; there is no way back."""
        effect = self.would(arguments)
        how = {"reset_running_requests": True} if flag(arguments, "running") else {}
        if not self._scheduler.reset_prefix_cache(**how):
            raise RefusedError("unsafe", "vLLM has refused")
        return Done({**effect, "after_hashes": len(self._view.pool.cached_block_hash_to_block)})

    def _check_running(self) -> None:
        scheduler, view = self._scheduler, self._view
        if not self._resets_running:
            raise RefusedError("unsupported", "this vLLM can't put running requests back")
        if getattr(scheduler, "connector", None) is not None or view.others:
            raise RefusedError("unsafe", "a connector may hold blocks, and vLLM would raise with everything preempted")
        if getattr(self._engine, "batch_queue", None):
            raise RefusedError("unsafe", "a step is in flight: pause, and try when it has come back")
        held: Counter[int] = Counter()
        for request in scheduler.running:
            for manager in view.managers:
                held.update(id(block) for block in manager.req_to_blocks.get(request.request_id) or ())
        for block in _held(view.pool):
            if block.ref_cnt != held[id(block)]:
                raise RefusedError("unsafe", f"block {block.block_id} is held by another than the running requests")


def _held(pool: Any) -> list[Any]:
    return [block for block in pool.blocks if block.ref_cnt and not block.is_null]
