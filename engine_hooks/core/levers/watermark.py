"""Throttle admission by blocks: requests that wait are let in only while so many blocks would stay free."""

from __future__ import annotations

from engine_hooks.core.levers.arguments import need, one_of, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.levers.base import Done, RefusedError, number, whole
from engine_hooks.levers.orders import Arguments

MAX_RATIO = 0.9


class Watermark:
    """Arguments: ``ratio`` (0..0.9 of the capacity) or ``blocks``.

    The mildest lever there is: running work never feels it, and vLLM lets one request in all the same where nothing
    else runs, so that nothing waits for ever.
    """

    NAME = "watermark"

    def __init__(self, context: LeverContext) -> None:
        manager = context.scheduler.kv_cache_manager
        need(manager, "watermark_blocks")
        self._view = context.view
        self._knob = context.knobs.of(manager, "watermark_blocks", max)

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return the watermark before and after, in blocks."""
        return {"before_blocks": self._knob.value, "after_blocks": self._wanted(arguments)}

    def apply(self, arguments: Arguments) -> Done:
        """Raise it; undone by putting back exactly what was there."""
        effect = self.would(arguments)
        self._knob.ask(self.NAME, int(effect["after_blocks"]))
        return Done(effect, self._undo)

    def _undo(self) -> dict[str, int | float]:
        before = self._knob.value
        self._knob.drop(self.NAME)
        return {"before_blocks": before, "after_blocks": self._knob.value}

    def _wanted(self, arguments: Arguments) -> int:
        only(arguments, "ratio", "blocks")
        capacity = self._view.capacity()
        limit = int(MAX_RATIO * capacity)
        if one_of(arguments, "ratio", "blocks") == "ratio":
            blocks = int(number(arguments, "ratio", 0.0, MAX_RATIO) * capacity)
        else:
            blocks = whole(arguments, "blocks", 0, limit)
        if blocks <= self._knob.value:
            raise RefusedError("nothing", f"the watermark is {self._knob.value} blocks already: it is only raised")
        return blocks
