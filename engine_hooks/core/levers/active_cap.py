"""Throttle admission by requests: no more than so many run at a time."""

from __future__ import annotations

from engine_hooks.core.levers.arguments import need, one_of, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.levers.base import Done, RefusedError, number, whole
from engine_hooks.levers.orders import Arguments

FLOOR = 16  # of a factor: a person may go lower, by number
MOST = 1_000_000


class ActiveCap:
    """Arguments: ``requests`` (at least 1), or ``factor`` of what runs now (0.8: a step of a fifth; never below 16).

    Sets ``max_num_active_reqs``: what runs goes on running. Not ``max_num_running_reqs``, on which vLLM asserts.
    """

    NAME = "active_cap"

    def __init__(self, context: LeverContext) -> None:
        need(context.scheduler, "max_num_active_reqs", "running")
        self._scheduler = context.scheduler
        self._knob = context.knobs.of(context.scheduler, "max_num_active_reqs", min)

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return the cap before and after, and what runs now."""
        after = self._wanted(arguments)
        return {
            "before_requests": self._knob.value,
            "after_requests": after,
            "running": len(self._scheduler.running),
        }

    def apply(self, arguments: Arguments) -> Done:
        """Lower the cap; undone by putting back exactly what was there."""
        effect = self.would(arguments)
        self._knob.ask(self.NAME, int(effect["after_requests"]))
        return Done(effect, self._undo)

    def _undo(self) -> dict[str, int | float]:
        before = self._knob.value
        self._knob.drop(self.NAME)
        return {"before_requests": before, "after_requests": self._knob.value}

    def _wanted(self, arguments: Arguments) -> int:
        only(arguments, "requests", "factor")
        if one_of(arguments, "requests", "factor") == "requests":
            cap = whole(arguments, "requests", 1, MOST)
        else:
            factor = number(arguments, "factor", 0.1, 1.0)
            cap = max(FLOOR, int(factor * len(self._scheduler.running)))
        if cap >= self._knob.value:
            raise RefusedError("nothing", f"at most {self._knob.value} requests run already: the cap is only lowered")
        return cap
