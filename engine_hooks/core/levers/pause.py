"""Let nothing new in: what runs goes on to its end, what comes is queued."""

from __future__ import annotations

from typing import Any

from engine_hooks.core.levers.arguments import need, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.patch import Patch
from engine_hooks.levers.base import Done, RefusedError
from engine_hooks.levers.orders import Arguments


class Pause:
    """No arguments. vLLM's own pause of new work (``PAUSED_NEW``), as its ``/pause`` with mode ``wait`` sets it.

    Unsupported in a data-parallel group whose ranks step together (mixture-of-experts models): a queue that goes on at
    one rank alone has it wait in a collective for the others, which nobody wakes. vLLM resumes such a group only
    by a barrier of all ranks, and between orders to single processes there is none.
    """

    NAME = "pause"

    def __init__(self, context: LeverContext) -> None:
        scheduler = context.scheduler
        need(scheduler, "set_pause_state", "pause_state")
        self._states: Any = type(scheduler.pause_state)
        if not all(hasattr(self._states, name) for name in ("UNPAUSED", "PAUSED_NEW")):
            raise RefusedError("unsupported", "this vLLM has no pause of new work alone")
        if hasattr(context.engine, "dp_group"):
            raise RefusedError("unsupported", "the ranks of this group step together and resume only together")
        self._scheduler, self._view, self._guard = scheduler, context.view, context.guard
        self._patch: Patch | None = None
        self._ours = False

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return what runs and what waits now."""
        only(arguments)
        state = self._scheduler.pause_state
        if state != self._states.UNPAUSED:
            raise RefusedError("conflict", f"somebody else has it paused: {state.name}")
        running, waiting = self._view.running_and_waiting()
        return {"running": running, "waiting": waiting}

    def apply(self, arguments: Arguments) -> Done:
        """Pause; undone by resuming, unless another has paused or resumed it meanwhile."""
        effect = self.would(arguments)
        self._scheduler.set_pause_state(self._states.PAUSED_NEW)
        self._ours = True
        self._patch = Patch(self._scheduler, "set_pause_state", self._another, self._guard, "lever_pause")
        return Done(effect, self._undo)

    def _another(self, *_args: Any, **_kwargs: Any) -> None:
        self._ours = False

    def _undo(self) -> dict[str, int | float]:
        if self._patch is not None:
            self._patch.remove()
        ours, self._ours = self._ours, False
        if ours:
            self._scheduler.set_pause_state(self._states.UNPAUSED)
        running, waiting = self._view.running_and_waiting()
        return {"resumed": int(ours), "running": running, "waiting": waiting}
