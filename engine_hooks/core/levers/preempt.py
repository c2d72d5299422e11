"""Put running requests back: their blocks come free at once, their tokens so far are computed again later."""

from __future__ import annotations

import inspect
import time
from typing import Any

from engine_hooks.core.levers.arguments import flag, need, only, priority_of
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.marks import marks_of
from engine_hooks.levers.base import Done, RefusedError, whole
from engine_hooks.levers.orders import Arguments

MOST = 1024


class Preempt:
    """Arguments: ``requests`` to put back, the newest first and those of ``priority`` tenants last; ``cap``: hold the
    cap on active requests at what goes on running, for the lease.

    Refused while admission is open: a victim would be let in again in the very next step. Steps in flight (asynchronous
    scheduling, pipelines) have tokens of the victims under way. Where vLLM can drop them (``drop_stale_output``, as its
    own reset of running requests does), they are sampled again: none is lost, none comes twice. Where it can't, this
    is refused unless nothing is in flight.
    """

    NAME = "preempt"

    def __init__(self, context: LeverContext) -> None:
        scheduler = context.scheduler
        need(scheduler, "_preempt_request", "running")
        # Of the class: the one on the object is wrapped, and takes anything.
        names = inspect.signature(type(scheduler)._preempt_request).parameters
        if len(names) < 3:
            raise RefusedError("unsupported", f"_preempt_request takes other arguments here: {', '.join(names)[:60]}")
        self._drops = "drop_stale_output" in names
        self._engine, self._scheduler, self._view = context.engine, scheduler, context.view
        self._caps = hasattr(scheduler, "max_num_active_reqs")
        self._cap = context.knobs.of(scheduler, "max_num_active_reqs", min) if self._caps else None

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return how many would be put back, and the table entries that they hold."""
        victims = self._victims(arguments)
        return {"requests": len(victims), "entries": self._entries(victims), "running": len(self._scheduler.running)}

    def apply(self, arguments: Arguments) -> Done:
        """Put them back; only the cap can be undone."""
        scheduler, pool = self._scheduler, self._view.pool
        victims = self._victims(arguments)
        before, entries = int(pool.get_num_free_blocks()), self._entries(victims)
        if flag(arguments, "cap") and self._cap is not None:
            self._cap.ask(self.NAME, max(1, len(scheduler.running) - len(victims)))
        how = {"drop_stale_output": True} if self._drops else {}
        now = time.monotonic()
        for victim in victims:  # the newest first: each is put ahead of those before it, so that the oldest comes first
            scheduler.running.remove(victim)
            scheduler._preempt_request(victim, now, **how)
        # Should one be let in again in the next step, the worker must be told all of its tokens anew.
        scheduled: Any = getattr(scheduler, "prev_step_scheduled_req_ids", None)
        if scheduled is not None:
            scheduled.difference_update(victim.request_id for victim in victims)
        effect: dict[str, int | float] = {
            "requests": len(victims),
            "entries": entries,
            "before_free_blocks": before,
            "after_free_blocks": int(pool.get_num_free_blocks()),
        }
        return Done(effect, self._undo if flag(arguments, "cap") else None)

    def _undo(self) -> dict[str, int | float]:
        if self._cap is None:
            return {}
        before = self._cap.value
        self._cap.drop(self.NAME)
        return {"before_requests": before, "after_requests": self._cap.value}

    def _victims(self, arguments: Arguments) -> list[Any]:
        only(arguments, "requests", "cap", "priority")
        wanted, priority = whole(arguments, "requests", 1, MOST), priority_of(arguments)
        running = [r for r in self._scheduler.running if r.status.name == "RUNNING"]
        if len(running) < 2:
            raise RefusedError("nothing", f"{len(running)} requests run: one is left running in any case")
        if not self._drops and getattr(self._engine, "batch_queue", None):
            raise RefusedError("unsafe", "a step is in flight, and this vLLM can't drop what it brings")
        running.sort(key=lambda r: (marks_of(r).tenant in priority if priority else False, -r.arrival_time))
        victims = running[: min(wanted, len(running) - 1)]
        victims.sort(key=lambda r: -r.arrival_time)
        self._check_admission(arguments, victims)
        return victims

    def _check_admission(self, arguments: Arguments, victims: list[Any]) -> None:
        scheduler = self._scheduler
        left = len(scheduler.running) - len(victims)
        if flag(arguments, "cap"):
            if self._cap is None:
                raise RefusedError("unsupported", "this vLLM has no cap on active requests: pause first")
            return
        state = getattr(scheduler, "pause_state", None)
        if state is not None and state.name != "UNPAUSED":
            return
        if self._cap is not None and self._cap.value <= left:
            return
        free = self._view.pool.get_num_free_blocks() + self._entries(victims)
        if getattr(scheduler.kv_cache_manager, "watermark_blocks", 0) >= free:
            return
        raise RefusedError(
            "unsafe",
            f"admission is open: the next step would let them in again. Cap it at {left} requests, raise the watermark "
            f"to {free} blocks, pause, or give cap=true",
        )

    def _entries(self, requests: list[Any]) -> int:
        tables = [m.req_to_blocks.get(r.request_id) or () for m in self._view.managers for r in requests]
        return sum(map(len, tables))
