"""How many names a process may bring in over time: each becomes a label, and a label costs its readers for hours.

A frame is bounded, and so is what is told at once; an engine that is broken or hostile, or whose clients are, may still
call things by other names each second. A name that is known costs nothing; a new one costs a piece of an allowance that
comes back slowly. Pure: no clock of its own, times are monotonic seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from engine_hooks.detail import OTHER
from engine_hooks.names import NO_TENANT

HOUR = 3600.0
AWAY_SECONDS = 60.0  # a name that was refused is asked about anew when nobody has told it for so long
REMEMBERED = 256
REFUSED = 96  # names that are known to have been refused
KINDS = ("engine", "process", "tenant", "peer", "id", "word")
BOOKS = 128  # labels whose names are remembered
# New names at once, and more in each hour.
ENGINES = (64, 16)  # and as many processes of no engine
PROCESS = (16, 8)  # of those, that one process draws for itself
TENANTS = (64, 60)  # of one engine
LISTED = (64, 16)  # of one engine, with a quota: clients that draw names can't take their places
NODE_TENANTS = (512, 240)
PEERS = (64, 60)
IDS = (16, 16)
WORDS = (256, 16)  # all other names of one engine: pools, endings, devices, ranks


class Allowance:
    """``first`` new names at once, and ``hourly`` more in each hour."""

    def __init__(self, first: int, hourly: int) -> None:
        self._first, self._hourly = first, hourly
        self._left, self._at = float(first), 0.0

    def has(self, now: float) -> bool:
        """Return whether there is a name left at ``now``."""
        self._left = min(self._first, self._left + max(0.0, now - self._at) * self._hourly / HOUR)
        self._at = max(self._at, now)
        return self._left >= 1

    def take(self) -> None:
        """Spend one."""
        self._left -= 1


class Names:
    """Names of one kind. ``allowances``: all must have one left for a new name. ``refused``: how many were not taken.

    What was refused is refused for as long as it is told: what it counts stands under another name, and must not leave
    that one again, or that one's sums would fall.
    """

    def __init__(self, *allowances: Allowance) -> None:
        self._allowances = allowances
        self._known: dict[str, None] = {}  # the one that was not told for longest first
        self._refused: dict[str, float] = {}  # until when
        self.refused = 0

    def admits(self, name: str, now: float, *own: Allowance) -> bool:
        """Return whether ``name`` may be told at ``now``; a new one is taken off ``own`` allowances, too."""
        if name in self._known:
            del self._known[name]
            self._known[name] = None
            return True
        allowances = (*self._allowances, *own)
        if self._is_refused(name, allowances, now):
            return False
        for allowance in allowances:
            allowance.take()
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[name] = None
        return True

    def knows(self, name: str) -> bool:
        """Return whether ``name`` has been told, and costs nothing."""
        return name in self._known

    def _is_refused(self, name: str, allowances: Iterable[Allowance], now: float) -> bool:
        until = self._refused.pop(name, None)
        again = until is not None and now < until
        if not again and all(allowance.has(now) for allowance in allowances):
            return False
        self.refused += not again
        if len(self._refused) >= REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[name] = now + AWAY_SECONDS
        return True


class EngineNames:
    """What one engine may call things. ``whole``: the node's tenants, None where none may have a name of its own."""

    def __init__(self, whole: Allowance | None) -> None:
        first, hourly = TENANTS if whole is not None else (0, 0)
        node = (whole,) if whole is not None else ()
        self.tenants = Names(Allowance(first, hourly), *node)
        self.listed = Names(Allowance(*LISTED)) if whole is not None else self.tenants
        self.peers, self.ids, self.words = Names(Allowance(*PEERS)), Names(Allowance(*IDS)), Names(Allowance(*WORDS))

    def tenant(self, name: str, now: float, *, listed: bool = False) -> bool:
        """Return whether a tenant may be told by ``name``; ``listed``: it has a quota."""
        if name in (OTHER, NO_TENANT):
            return True
        return (self.listed if listed or self.listed.knows(name) else self.tenants).admits(name, now)

    def word(self, name: str, now: float) -> str:
        """Return ``name``, or ``other`` where it is one too many."""
        return name if name in ("", OTHER) or self.words.admits(name, now) else OTHER

    def counted(self, by_name: Mapping[str, int], now: float) -> Mapping[str, int]:
        """Return counts by name, those of names that are too many as ``other``."""
        if not by_name:
            return by_name
        found: Counter[str] = Counter()
        for name, count in by_name.items():
            found[self.word(name, now)] += count
        return by_name if found.keys() == by_name.keys() else dict(found)

    def refused(self) -> dict[str, int]:
        """Return how many names were not taken, by kind."""
        listed = self.listed.refused if self.listed is not self.tenants else 0
        tenants = self.tenants.refused + listed
        return {"tenant": tenants, "peer": self.peers.refused, "id": self.ids.refused, "word": self.words.refused}


class NodeNames:
    """The names of all engines and processes of a node."""

    def __init__(self) -> None:
        self.engines, self.processes = Names(Allowance(*ENGINES)), Names(Allowance(*ENGINES))
        self._tenants = Allowance(*NODE_TENANTS)
        self._drawn: dict[int, Allowance] = {}  # by pid, the one that was not asked for longest first
        self._of: dict[str, EngineNames] = {}  # the one that was not asked for longest first
        self._nameless = EngineNames(None)
        self._forgotten: Counter[str] = Counter()

    def drawn_by(self, pid: int) -> tuple[Allowance, ...]:
        """Return what limits the names that the process ``pid`` gives itself; nothing where it can't be told (0)."""
        if not pid:
            return ()
        drawn = self._drawn.pop(pid, None) or Allowance(*PROCESS)
        if len(self._drawn) >= BOOKS:
            del self._drawn[next(iter(self._drawn))]
        self._drawn[pid] = drawn
        return (drawn,)

    def of(self, label: str) -> EngineNames:
        """Return the names of the engine ``label``; all that are called ``other`` share theirs, and name no tenant."""
        if label.partition("~")[0] == OTHER:
            return self._nameless
        names = self._of.pop(label, None)
        if names is None:
            names = EngineNames(self._tenants)
            if len(self._of) >= BOOKS:
                self._forgotten.update(self._of.pop(next(iter(self._of))).refused())
        self._of[label] = names
        return names

    def refused(self) -> dict[str, int]:
        """Return how many names were not taken since the agent started, by kind."""
        found = Counter(self._forgotten)
        for names in (*self._of.values(), self._nameless):
            found.update(names.refused())
        return {kind: found[kind] for kind in KINDS} | {
            "engine": self.engines.refused,
            "process": self.processes.refused,
        }


def free_of(name: str, taken: Collection[str]) -> str:
    """Return ``name``, or with a number the first that is not taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    return free
