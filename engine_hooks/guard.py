"""Nothing that a hook does may reach the engine: exceptions are caught and counted, and a hook that keeps raising
is switched off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from engine_hooks.names import shown

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines

P = ParamSpec("P")
R = TypeVar("R")

ERROR_LIMIT = 5


class Guard:
    """Counts the exceptions of one engine's hooks by name.

    Not ``BaseException``: vLLM ends an engine by raising ``SystemExit`` in a signal handler, which may run
    inside a hook and must get through.
    """

    def __init__(self, limit: int = ERROR_LIMIT) -> None:
        self._limit = limit
        self.errors: dict[str, int] = {}
        self.off: dict[str, str] = {}

    def run(self, hook: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call ``function``; None when it raised or when this hook is off."""
        if hook in self.off:
            return None
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self.note(hook, error)
            return None

    def give_back(self, hook: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call ``function`` even when this hook is off: it gives back what was taken while it was not."""
        try:
            function(*args, **kwargs)
        except Exception as error:
            self.note(hook, error)

    def note(self, hook: str, error: Exception) -> None:
        """Count an exception of ``hook``; the limit switches it off. Logs when it begins and when it ends."""
        count = self.errors.get(hook, 0) + 1
        self.errors[hook] = count
        if count == 1:
            logger.warning("kvtide: hook %s raised; the engine goes on", hook, exc_info=error)
        if count >= self._limit and hook not in self.off:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            # It may quote what a client sent, and the report that tells it must not be refused for a control character.
            self.off[hook] = shown(reason)
            logger.error("kvtide: hook %s is off after %d errors, the last one %s", hook, count, self.off[hook])


def told(guards: Iterable[Guard], most: int) -> tuple[dict[str, int], dict[str, str]]:
    """Return what hooks of several guards have raised and which of them are off, ``most`` names each."""
    errors: dict[str, int] = {}
    off: dict[str, str] = {}
    for guard in guards:
        # Copied at one stroke: another thread may be adding to it.
        for hook, count in dict(guard.errors).items():
            if hook in errors or len(errors) < most:
                errors[hook] = errors.get(hook, 0) + count
        for hook, why in dict(guard.off).items():
            if len(off) < most:
                off.setdefault(hook, why)
    return errors, off
