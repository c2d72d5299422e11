"""What slow estimates rest on, as plain data, so that an agent's restart does not begin a week anew.

Times are on the host's monotonic clock, which goes on while an agent does not run; another boot makes all of it void.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isclose

import msgspec

VERSION = 1
MOST_TRACKS = 256  # some 13 kB each after two weeks
SAME_SECONDS = 5.0  # a process's start follows the wall clock a little

Mark = str | int | float | None


class KeptTier(msgspec.Struct, frozen=True, kw_only=True):
    """Points of one resolution; ``until``: when the last one's bin is over."""

    times: list[float]
    values: list[float]
    beside: list[float]
    until: float | None


class KeptTrack(msgspec.Struct, frozen=True, kw_only=True):
    """One number. ``instance``: of what, so that nothing goes on that began anew; ``begun``: seen since then.

    ``said_seconds``: for how long both estimates have said the same; None: they say nothing.
    """

    instance: tuple[Mark, ...]
    begun: float
    tiers: tuple[KeptTier, ...]
    said_seconds: tuple[float | None, float | None] = (None, None)


class Tracks(msgspec.Struct, frozen=True, kw_only=True):
    """All of a node by name, as of ``monotonic``. ``boot``: the kernel's, empty where it can't be told."""

    monotonic: float
    version: int = VERSION
    boot: str = ""
    tracks: dict[str, KeptTrack] = {}


class Restored:
    """Gives each track to the first who asks by its name and is the same instance; ``kept`` may be nothing."""

    def __init__(self, kept: Tracks | None) -> None:
        usable = kept is not None and kept.version == VERSION and len(kept.tracks) <= MOST_TRACKS
        self._left = dict(kept.tracks) if usable and kept is not None else {}
        self.monotonic = kept.monotonic if kept is not None else 0.0

    def take(self, name: str, instance: Sequence[object]) -> KeptTrack | None:
        """Return what was kept of ``name``; None where nothing was, or of another instance."""
        kept = self._left.pop(name, None) if self._left else None
        return kept if kept is not None and _same(kept.instance, instance) else None

    def left(self) -> Iterator[tuple[str, KeptTrack]]:
        """Yield what nobody has asked for yet."""
        yield from self._left.items()

    def clear(self) -> None:
        """Forget the rest."""
        self._left.clear()


def _same(before: Sequence[object], now: Sequence[object]) -> bool:
    return len(before) == len(now) and all(map(_alike, before, now))


def _alike(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=0.0, abs_tol=SAME_SECONDS)
    return one == other
