"""Types and bounds of what a snapshot holds: what is wrong is named by place, value and what is allowed."""

from __future__ import annotations

from typing import Any

from agent.snapshot.errors import SnapshotError

_MAX = 1 << 64
_NOTES = 20  # that are kept; more of them are counted
# A block or trace entry takes eight bytes of file at least. More of them than that is one part, repeated by reference.
_BYTES_EACH = 8
_ALWAYS = 1000

Place = tuple[Any, ...]


class Checks:
    """Checks one file of ``size`` bytes, and gathers what is odd and no error."""

    def __init__(self, size: int) -> None:
        self.most = size // _BYTES_EACH + _ALWAYS
        self._items = 0
        self._notes: list[str] = []
        self._more = 0

    def wrong(self, place: Place, value: Any, allowed: str) -> SnapshotError:
        """Return the error for a value that can't be there."""
        return SnapshotError(f"{_place(place)}: {_short(value)}; must be {allowed}")

    def note(self, text: str) -> None:
        """Keep what the reader should know, each text once."""
        if text in self._notes:
            return
        if len(self._notes) < _NOTES:
            self._notes.append(text)
        else:
            self._more += 1

    def notes(self) -> tuple[str, ...]:
        """Return what was noted."""
        return (*self._notes, f"{self._more:,} more notes") if self._more else tuple(self._notes)

    def count(self, items: int) -> None:
        """Count what is gone through; raises when that is more than the file can hold."""
        self._items += items
        if self._items > self.most:
            raise SnapshotError("refused: it repeats its parts by reference, to more than the file can hold")

    def rows(self, value: Any, place: Place) -> list[Any]:
        """Return a list."""
        if type(value) is not list:
            raise self.wrong(place, value, "a list")
        self.count(len(value))
        return value

    def row(self, value: Any, place: Place) -> dict[Any, Any]:
        """Return a dict."""
        if type(value) is not dict:
            raise self.wrong(place, value, "a dict")
        return value

    def number(self, row: dict[Any, Any], key: str, place: Place, absent: int | None = None) -> int:
        """Return an integer of 0 or more; ``absent`` where the key is not there, an error without one."""
        value = row.get(key, absent)
        if type(value) is int and 0 <= value < _MAX:
            return value
        if value is None:
            raise SnapshotError(f"{_place(place)}: has no {key}; must have one, an integer of 0 or more")
        raise self.wrong((*place, key), value, "an integer from 0 up to 2^64")


def _place(place: Place) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _short(value: Any) -> str:
    if isinstance(value, list | dict | tuple):
        return f"a {type(value).__name__} of {len(value):,}"
    if isinstance(value, int) and value.bit_length() > 128:
        return "an integer of more than 128 bits"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."
