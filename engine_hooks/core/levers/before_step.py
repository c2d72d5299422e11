"""What levers in force do ahead of each step. With none in force the scheduler's method is its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine_hooks.core.levers.patch import Patch
from engine_hooks.guard import Guard


class BeforeStep:
    """Calls functions ahead of each ``schedule()`` of one scheduler, on the engine's thread."""

    HOOK = "lever"

    def __init__(self, scheduler: Any, guard: Guard) -> None:
        self._scheduler = scheduler
        self._guard = guard
        self._functions: dict[str, Callable[[], None]] = {}
        self._patch: Patch | None = None

    def add(self, name: str, function: Callable[[], None]) -> None:
        """Have ``function`` called from now on; what it raises is counted by the name of its lever."""
        self._functions[name] = function
        if self._patch is None:
            self._patch = Patch(self._scheduler, "schedule", self._call, self._guard, self.HOOK)

    def remove(self, name: str) -> None:
        """Call it no more."""
        self._functions.pop(name, None)
        if not self._functions and self._patch is not None:
            self._patch.remove()
            self._patch = None

    def _call(self, *_args: Any, **_kwargs: Any) -> None:
        for name, function in tuple(self._functions.items()):
            self._guard.run(f"lever_{name}", function)
