"""Work between two steps of an engine, with nothing in flight. With no such work the engine's method is its own.

Where vLLM has several steps under way (asynchronous scheduling, pipeline stages), the next call of its step takes one
in instead of scheduling another, until none is left: as many calls as there may be steps in flight, no more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from engine_hooks.guard import Guard


class HalfMovedError(Exception):
    """Some tables were rewritten and others may not: no step may follow."""


class BetweenSteps:
    """``wanted``: whether there is work; ``work``: does some of it.

    ``broken``: why this engine must not take another step, empty while it may. Then each one raises.
    """

    HOOK = "compaction"

    def __init__(self, engine: Any, guard: Guard, wanted: Callable[[], bool], work: Callable[[], None]) -> None:
        self._engine, self._guard, self._wanted, self._work = engine, guard, wanted, work
        self._original: Callable[..., Any] | None = None
        self._around: Callable[..., Any] | None = None
        self._on = False
        self.broken = ""

    def begin(self) -> None:
        """Be called from the next step on."""
        self._on = True
        if self._around is not None and self._engine.step_fn is self._around:
            return
        self._original = original = self._engine.step_fn

        @functools.wraps(original)
        def step_fn(*args: Any, **kwargs: Any) -> Any:
            if self._on or self.broken:
                if self._wanted() and self.HOOK not in self._guard.off:
                    if self._engine.batch_queue:
                        return self._take_one_in(original, *args, **kwargs)
                    self.run()
                if self.broken:
                    raise HalfMovedError(f"kvtide: blocks were moved by halves ({self.broken}): this engine must end")
            return original(*args, **kwargs)

        self._around = step_fn
        self._engine.step_fn = step_fn

    def end(self) -> None:
        """Be called no more. Where another has wrapped the step since, ours stays beneath and only passes on."""
        self._on = False
        if not self.broken and self._around is not None and self._engine.step_fn is self._around:
            self._engine.step_fn, self._around = self._original, None

    def run(self) -> None:
        """Work now, if nothing is in flight. Never raises."""
        if not self.broken and not self._engine.batch_queue:
            self._guard.run(self.HOOK, self._work)

    def fence(self, why: str) -> None:
        """Let no step follow, or, with an empty text, let them."""
        self.broken = why[:300]

    def _take_one_in(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Have the engine take in a step that is in flight: it schedules nothing where nobody has requests."""
        scheduler = self._engine.scheduler
        own = vars(scheduler).get("has_requests")  # of somebody else who has wrapped it
        scheduler.has_requests = _nobody
        try:
            return original(*args, **kwargs)
        finally:
            if own is None:
                del scheduler.has_requests
            else:
                scheduler.has_requests = own


def _nobody() -> bool:
    return False
