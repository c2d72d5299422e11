"""Numbers of the engine on which several levers may press at once: the strictest wins, and the last to let go restores.

Without this two levers that end in another order than they began would leave each other's value behind for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class Knob:
    """``owner.attribute``, a whole number. ``strictest`` chooses among what is asked and what was there: min or max."""

    def __init__(self, owner: Any, attribute: str, strictest: Callable[[Iterable[int]], int]) -> None:
        self._owner, self._attribute, self._strictest = owner, attribute, strictest
        self._asked: dict[str, int] = {}
        self._base: Any = None
        self._ours: Any = None

    @property
    def value(self) -> int:
        """What the engine has now."""
        return int(getattr(self._owner, self._attribute))

    @property
    def base(self) -> int:
        """What the engine would have without us."""
        self._notice()
        return int(self._base)

    def asked_by(self, lever: str) -> int | None:
        """What ``lever`` asks for now."""
        return self._asked.get(lever)

    def ask(self, lever: str, value: int) -> None:
        """Press for ``value`` until :meth:`drop`."""
        self._notice()
        self._asked[lever] = value
        self._set()

    def drop(self, lever: str) -> None:
        """Let go; with nobody left the engine has again what it had, the same object."""
        self._notice()
        if self._asked.pop(lever, None) is not None:
            self._set()

    def _notice(self) -> None:
        """Take in what another has set meanwhile: that is what it will go back to."""
        now = getattr(self._owner, self._attribute)
        if not self._asked or now is not self._ours:
            self._base = now

    def _set(self) -> None:
        value = self._strictest([self._base, *self._asked.values()]) if self._asked else self._base
        self._ours = value
        setattr(self._owner, self._attribute, value)


class Knobs:
    """The knobs of one engine."""

    def __init__(self) -> None:
        self._knobs: dict[tuple[int, str], Knob] = {}

    def of(self, owner: Any, attribute: str, strictest: Callable[[Iterable[int]], int]) -> Knob:
        """Return the one knob of ``owner.attribute``; ``owner`` lives as long as the engine."""
        key = (id(owner), attribute)
        if key not in self._knobs:
            self._knobs[key] = Knob(owner, attribute, strictest)
        return self._knobs[key]
