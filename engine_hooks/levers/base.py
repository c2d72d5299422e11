"""What a lever is. One file each; the engine core's are in ``engine_hooks/core/levers``, an API server's in
``engine_hooks/frontend``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine_hooks.levers.orders import Arguments


class RefusedError(Exception):
    """A lever will not do it; ``code`` is one of :data:`engine_hooks.levers.orders.CODES`, the text is for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Done:
    """What a lever did: ``effect`` in named numbers. ``undo`` takes it back and returns what that did; None where
    there is nothing to take back, and then no lease. ``again``: where that raises it has changed nothing, and may be
    tried again until it does not.
    """

    effect: dict[str, int | float] = field(default_factory=dict)
    undo: Callable[[], dict[str, int | float]] | None = None
    detail: str = ""
    again: bool = False


class Lever(Protocol):
    """One thing that can be done to this process, on the thread that owns what it changes.

    The constructor takes what the lever works on and raises :class:`RefusedError` with ``unsupported`` where this
    vLLM lacks it: probed once, never by version.
    """

    NAME: str

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return what :meth:`apply` would do now, in its terms, and change nothing; raises :class:`RefusedError`."""
        ...

    def apply(self, arguments: Arguments) -> Done:
        """Do it, all or none; raises :class:`RefusedError`. Whatever else it raises, nothing has been changed."""
        ...


def replaces(lever: Lever) -> bool:
    """Whether applying it anew takes the place of what is in force at one stroke, whose undo then changes nothing: its
    class says ``REPLACES = True``. For one that runs beside what it rules, which must not see the moment in between.
    """
    return bool(getattr(lever, "REPLACES", False))


def _plain(bound: float) -> str:
    return f"{bound:.0f}" if float(bound).is_integer() else f"{bound:g}"


def number(arguments: Arguments, name: str, low: float, high: float, default: float | None = None) -> float:
    """Return a numeric argument within ``low..high``; raises :class:`RefusedError`."""
    value: Any = arguments.get(name, default)
    if value is None:
        raise RefusedError("bad_argument", f"{name} is needed: a number in {_plain(low)}..{_plain(high)}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        told = repr(value)[:40]
        raise RefusedError("bad_argument", f"{name}: {told}: must be a number in {_plain(low)}..{_plain(high)}")
    return value


def whole(arguments: Arguments, name: str, low: int, high: int, default: int | None = None) -> int:
    """Return an integer argument within ``low..high``; raises :class:`RefusedError`."""
    value = number(arguments, name, low, high, default)
    if value != int(value):
        raise RefusedError("bad_argument", f"{name}: {value!r}: must be a whole number in {low}..{high}")
    return int(value)
