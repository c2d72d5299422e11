"""A method of one object of the engine's that is listened to for a while, and put back as it was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from engine_hooks.guard import Guard


class Patch:
    """Has ``before`` called, with the same arguments, ahead of each call of ``owner.name``, until :meth:`remove`.

    The original runs in any case, with its arguments and result untouched; what ``before`` raises is counted by
    ``guard`` under ``hook``. Where another has wrapped the method since, ours stays beneath and only passes on.
    """

    def __init__(self, owner: Any, name: str, before: Callable[..., None], guard: Guard, hook: str) -> None:
        self._owner, self._name = owner, name
        self._of_instance = name in vars(owner)
        self._original = original = getattr(owner, name)
        self._on = True

        @functools.wraps(original)
        def around(*args: Any, **kwargs: Any) -> Any:
            if self._on:
                guard.run(hook, before, *args, **kwargs)
            return original(*args, **kwargs)

        self._around = around
        setattr(owner, name, around)

    def remove(self) -> None:
        """End it. The second time it does nothing."""
        self._on = False
        if vars(self._owner).get(self._name) is not self._around:
            return
        if self._of_instance:
            setattr(self._owner, self._name, self._original)
        else:
            delattr(self._owner, self._name)
