"""End requests that decode and get no token for a long time, and tell their clients."""

from __future__ import annotations

from typing import Any

from engine_hooks.core.levers.arguments import need, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.silence import PERIOD, SILENT_SECONDS, Silence
from engine_hooks.levers.base import Done, RefusedError, number, whole
from engine_hooks.levers.orders import Arguments

MOST = 1024


class EndZombies:
    """Arguments: ``seconds`` without a token (30), ``requests`` to end at most (1,024).

    Only time in which the engine takes steps counts: after one long step nobody is a zombie. Looked at once a second,
    and only where KVTIDE_LEVERS lists this lever. The end is the one that vLLM gives an aborted request,
    with the output that tells the front end; without such a path the client would hang, and this is unsupported.
    """

    NAME = "end_zombies"

    def __init__(self, context: LeverContext) -> None:
        need(context.scheduler, "finish_requests", "running", "schedule")
        need(context.engine, "_send_abort_outputs")
        from vllm.v1.request import RequestStatus

        self._aborted = RequestStatus.FINISHED_ABORTED
        self._engine, self._scheduler, self._view = context.engine, context.scheduler, context.view
        self._clock = context.clock
        self._watches = context.allows(self.NAME)
        self._next = 0.0
        self._silence = Silence()
        if self._watches:
            context.before_step.add(self.NAME, self._look)

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return how many requests would be ended."""
        return {"requests": len(self._zombies(arguments))}

    def apply(self, arguments: Arguments) -> Done:
        """End them."""
        zombies = self._zombies(arguments)
        before = int(self._view.pool.get_num_free_blocks())
        ended = self._scheduler.finish_requests([r.request_id for r in zombies], self._aborted)
        self._engine._send_abort_outputs(ended)
        for request in zombies:
            self._silence.forget(request)
        after = int(self._view.pool.get_num_free_blocks())
        return Done({"requests": len(zombies), "before_free_blocks": before, "after_free_blocks": after})

    def _look(self) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + PERIOD
        self._silence.look(self._scheduler.running, now)

    def _zombies(self, arguments: Arguments) -> list[Any]:
        only(arguments, "seconds", "requests")
        seconds = number(arguments, "seconds", 5.0, 86_400.0, SILENT_SECONDS)
        most = whole(arguments, "requests", 1, MOST, MOST)
        if not self._watches:
            raise RefusedError("nothing", "requests are watched only where KVTIDE_LEVERS lists end_zombies")
        found = self._silence.longer_than(seconds, self._scheduler.running)
        if not found:
            raise RefusedError("nothing", f"no request that decodes has been without a token for {seconds:g} s")
        return found[:most]
