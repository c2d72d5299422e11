"""Growth of memory that is read every few seconds: devices, allocators, processes, cgroups.

The slope of the floor of some ten minutes and the slow estimate, with the rules that all of them share: a gap is
evidence of nothing, a new instance or a new size begins anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable

from agent.signals.fast import rate_of
from agent.signals.kept import KeptTrack, Mark, Restored
from agent.signals.series import Bins, Pace
from agent.signals.slow import SlowTrack
from agent.signals.types import Rate, Slow

LEAST_POINTS = 10


class Trend:
    """One number. ``seconds``: of a bin, ``window``: of the estimate; ``least``: of the whole, what is a rise.

    ``restored``: what an agent before this one has kept; the slow estimate goes on from it.
    """

    def __init__(
        self,
        name: str,
        *,
        seconds: float = 15.0,
        window: float = 600.0,
        least: float = 0.002,
        settle_seconds: float = 3600.0,
        least_ratio: float = 0.01,
        restored: Restored | None = None,
    ) -> None:
        self._name = name
        self._restored = restored
        self._bins = Bins(seconds, window)
        self._least = least
        self._pace = Pace()
        offset = zlib.crc32(name.encode()) % 60
        self._slow = SlowTrack(settle_seconds=settle_seconds, least_ratio=least_ratio, offset=offset, rising=True)
        self._instance: Hashable = None
        self._begun: float | None = None
        self._absent = False  # for longer than values are apart
        self.growth: Rate | None = None

    @property
    def slow(self) -> Slow | None:
        """The slow estimate; None while no value comes."""
        return None if self._absent else self._slow.slow

    @property
    def last(self) -> float | None:
        """When a value last came, monotonic."""
        return self._pace.last

    def seconds(self, now: float) -> float:
        """Return for how long this instance has been seen."""
        return 0.0 if self._begun is None else now - self._begun

    def kept(self) -> tuple[str, KeptTrack] | None:
        """Return its name and what is to be kept over a restart of the agent; None where nothing is known."""
        if self._begun is None:
            return None
        return self._name, self._slow.kept(_marks(self._instance), self._begun)

    def take(
        self,
        now: float,
        value: float | None,
        whole: float | None,
        instance: Hashable = None,
        beside: float | None = None,
    ) -> None:
        """Take a value, None where it is not known; ``whole`` is what rates are shares of. ``beside``: what it may go
        up and down with.
        """
        if value is None or not whole or whole <= 0:
            if self._pace.late(now):
                self._absent, self.growth = True, None
            return
        self._absent = False
        step = self._pace.take(now)
        if instance != self._instance or self._begun is None:
            self._instance, self._begun = instance, now
            self._bins.clear()
            self._slow.clear()
            self.growth = None
            self._restore(now)
        elif step == "gap":
            self._bins.clear()
            self.growth = None
        self._slow.add(now, value, whole, beside)
        if not self._bins.add(now, value):
            return
        times = list(self._bins.times)
        if len(times) < LEAST_POINTS:
            self.growth = None
            return
        self.growth = rate_of(times, list(self._bins.lows), whole, self._least)

    def _restore(self, now: float) -> None:
        kept = self._restored.take(self._name, _marks(self._instance)) if self._restored is not None else None
        if kept is not None and kept.begun <= now:
            self._begun = kept.begun
            self._slow.restore(kept, now)


def _marks(instance: Hashable) -> tuple[Mark, ...]:
    marks = instance if isinstance(instance, tuple) else (instance,)
    return tuple(mark if isinstance(mark, str | int | float | None) else str(mark) for mark in marks)
