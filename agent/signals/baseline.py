"""What is usual for an engine or a tenant, learned from it: a median that moves slowly and learns nothing from faults.

One value a minute. The first half hour gives a median; from then on each value moves it by a small share towards itself
(the median as a stochastic approximation, Robbins and Monro 1951, in steps of its own size). A value far off is not
learned from: it may be the fault that the baseline is there to show. What has been far off for six hours is how things
are now, and learning begins anew.
"""

from __future__ import annotations

from collections.abc import Collection
from statistics import median

import msgspec

VERSION = 1
LEARN_SECONDS = 60.0
LEAST_VALUES = 30
EARLY_VALUES = 8  # before that nothing is even known for now
EARLY_SHARE = 0.8  # of the first values: so many are at most what is taken as usual for now
STEP = 0.02  # of itself, a minute
FAR = 1.5  # times itself: not learned from
ANEW = 360  # minutes
MOST_ENGINES = 64
MOST_TENANTS = 64  # of one engine
MOST_NAMES = 16 + 3 * MOST_TENANTS  # of one engine: its own, and those of its tenants
FORGET_HOURS = 14 * 24  # of watching without a value


class Usual(msgspec.Struct, kw_only=True):
    """One learned value. ``first``: what is known while there is too little; ``far``: values in a row that are not
    like it. ``unseen``: hours of watching in which none came.
    """

    value: float = 0.0
    count: int = 0
    far: int = 0
    unseen: int = 0
    first: list[float] = []

    def learned(self) -> float | None:
        """Return the usual value; None before half an hour has been seen."""
        return self.value if self.count >= LEAST_VALUES else None

    def early(self) -> float | None:
        """Return what is known for now, until there is a usual value: of the first values a high one, since they may
        be on their way up. None before there are some, and once there is a usual value.
        """
        if self.count >= LEAST_VALUES or len(self.first) < EARLY_VALUES:
            return None
        return sorted(self.first)[int(EARLY_SHARE * (len(self.first) - 1))]

    def learn(self, value: float) -> None:
        """Take a minute's value."""
        if self.count < LEAST_VALUES:
            self.first.append(value)
            self.count += 1
            if self.count >= LEAST_VALUES:
                self.value, self.first = median(self.first), []
            return
        if self._is_far(value):
            self.far += 1
            if self.far >= ANEW:
                self.value, self.count, self.far = 0.0, 0, 0
            return
        self.far = 0
        self.count = min(self.count + 1, 100_000)
        step = STEP * max(abs(self.value), 1e-9)
        self.value += max(-step, min(step, value - self.value))

    def _is_far(self, value: float) -> bool:
        return value > FAR * self.value or value < self.value / FAR


class Baselines(msgspec.Struct, kw_only=True):
    """All that has been learned, by engine and name: plain data, to be kept over restarts of the agent."""

    version: int = VERSION
    engines: dict[str, dict[str, Usual]] = {}


class Learning:
    """What one engine's baselines are, and when they learn next."""

    def __init__(self, known: dict[str, Usual]) -> None:
        self.known = known
        self._due: float | None = None

    def due(self, now: float) -> bool:
        """Return whether a minute is over; asked once for each state."""
        if self._due is None:
            self._due = now + LEARN_SECONDS
            return False
        if now < self._due:
            return False
        self._due = now + LEARN_SECONDS
        return True

    def learn(self, name: str, value: float | None) -> None:
        """Learn a value; one that is not known teaches nothing."""
        if value is None:
            return
        usual = self.known.get(name)
        if usual is None:
            if len(self.known) >= MOST_NAMES and not self._make_room():
                return
            usual = self.known[name] = Usual()
        usual.learn(value)

    def _make_room(self) -> bool:
        """Forget what has not been seen for longest; return whether there was such a value."""
        oldest = max(self.known, key=lambda name: self.known[name].unseen)
        if not self.known[oldest].unseen:
            return False
        del self.known[oldest]
        return True

    def times(self, name: str, value: float | None, least: float) -> float | None:
        """Return ``value`` as a multiple of what is usual, where less than ``least`` is taken as that."""
        usual = self.known.get(name)
        if usual is not None and value is not None:
            usual.unseen = 0
        learned = usual.learned() if usual is not None else None
        return None if value is None or learned is None else value / max(learned, least)

    def early_times(self, name: str, value: float | None, least: float) -> float | None:
        """Return ``value`` as a multiple of what is known for now (:meth:`Usual.early`)."""
        usual = self.known.get(name)
        early = usual.early() if usual is not None else None
        return None if value is None or early is None else value / max(early, least)

    def usual(self, name: str) -> float | None:
        """Return what is usual; None where it has not been learned yet."""
        usual = self.known.get(name)
        return usual.learned() if usual is not None else None


def grown_old(engines: dict[str, dict[str, Usual]], present: Collection[str]) -> None:
    """Count an hour for what is kept, and forget what has not been seen for fourteen days of them."""
    for engine, known in list(engines.items()):
        for name, usual in list(known.items()):
            usual.unseen += 1
            if usual.unseen > FORGET_HOURS:
                del known[name]
        if not known and engine not in present:
            del engines[engine]


def usable(kept: Baselines | None) -> Baselines:
    """Return a copy of what was kept, as far as this version can use it and it is within bounds."""
    if kept is None or kept.version != VERSION:
        return Baselines()
    engines = {
        engine: {name: msgspec.structs.replace(usual, first=list(usual.first)) for name, usual in known.items()}
        for engine, known in kept.engines.items()
        if len(known) <= MOST_NAMES
    }
    return Baselines(engines=dict(list(engines.items())[-MOST_ENGINES:]))
