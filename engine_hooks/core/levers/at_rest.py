"""What levers do while an engine has no request: no step comes, so that they are called when it is woken."""

from __future__ import annotations

from collections.abc import Callable


class AtRest:
    """Calls functions at each wake-up of an engine without requests, on its own thread."""

    def __init__(self) -> None:
        self._functions: dict[str, tuple[Callable[[], bool], Callable[[], None]]] = {}

    def add(self, name: str, wanted: Callable[[], bool], function: Callable[[], None]) -> None:
        """Have ``function`` called from now on while it is ``wanted``; it must not raise."""
        self._functions[name] = (wanted, function)

    def remove(self, name: str) -> None:
        """Call it no more."""
        self._functions.pop(name, None)

    def run(self) -> bool:
        """Call those that are wanted; return whether one still is, so that a wake-up is to come soon."""
        for wanted, function in tuple(self._functions.values()):
            if wanted():
                function()
        return any(wanted() for wanted, _ in self._functions.values())
