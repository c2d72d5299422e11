"""End requests that decode and get no token for a long time, and tell their clients."""

from __future__ import annotations

from typing import Any

from engine_hooks.core.levers.arguments import need, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.levers.base import Done, RefusedError, number, whole
from engine_hooks.levers.orders import Arguments

PERIOD = 1.0
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
        self._looked: float | None = None
        self._seen: dict[str, tuple[Any, int, float]] = {}  # request, tokens, seconds of steps without a new one
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
            self._seen.pop(request.request_id, None)
        after = int(self._view.pool.get_num_free_blocks())
        return Done({"requests": len(zombies), "before_free_blocks": before, "after_free_blocks": after})

    def _look(self) -> None:
        now = self._clock()
        if now < self._next:
            return
        # What a single step takes beyond two periods is the step's, not the requests' fault.
        passed = 0.0 if self._looked is None else min(now - self._looked, 2 * PERIOD)
        self._next, self._looked = now + PERIOD, now
        seen: dict[str, tuple[Any, int, float]] = {}
        for request in self._scheduler.running:
            known = self._seen.get(request.request_id)
            tokens = request.num_output_tokens
            same = known is not None and known[0] is request and known[1] == tokens and _decodes(request)
            seen[request.request_id] = (request, tokens, known[2] + passed if known is not None and same else 0.0)
        self._seen = seen

    def _zombies(self, arguments: Arguments) -> list[Any]:
        only(arguments, "seconds", "requests")
        seconds = number(arguments, "seconds", 5.0, 86_400.0, 30.0)
        most = whole(arguments, "requests", 1, MOST, MOST)
        if not self._watches:
            raise RefusedError("nothing", "requests are watched only where KVTIDE_LEVERS lists this lever")
        running = set(map(id, self._scheduler.running))
        found = [
            (idle, request)
            for request, tokens, idle in self._seen.values()
            if idle >= seconds and id(request) in running and request.num_output_tokens == tokens
        ]
        if not found:
            raise RefusedError("nothing", f"no request that decodes has been without a token for {seconds:g} s")
        found.sort(key=lambda one: -one[0])
        return [request for _idle, request in found[:most]]


def _decodes(request: Any) -> bool:
    return bool(request.num_computed_tokens >= request.num_prompt_tokens)
