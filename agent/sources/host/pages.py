"""PSS and USS: the kernel walks through all pages of a process for them, so that they are read rarely."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from agent.sources.host.procfs import read_text, reason_of, sizes_of

# All walks together get a two-thousandth of a core, a twentieth of what the agent may take: one through 1 GiB of small
# pages takes 25 ms, and meanwhile the process may have to wait before it can map memory.
SHARE = 0.0005
MOST_CREDIT = 0.1  # seconds of walking that may be saved up
_PRIVATE = ("Private_Clean", "Private_Dirty", "Private_Hugetlb")


class Pages(NamedTuple):
    """What the last walk gave, and when it was; ``reason``: why there is nothing."""

    at: float | None = None
    proportional: int | None = None
    unique: int | None = None
    reason: str = ""


NOT_YET = Pages(reason="not its turn yet: reading it costs, and others come first")
SWITCHED_OFF = Pages()


class PageWalks:
    """Walks through one process after the other. ``every``: seconds between two of one process, at least; 0: never."""

    def __init__(self, proc: str, every: float, clock: Callable[[], float]) -> None:
        self._proc = proc
        self._every = every
        self._clock = clock
        self._credit, self._credited = MOST_CREDIT, clock()
        self._pages: dict[int, Pages] = {}
        self._last: dict[int, float] = {}

    def walk(self, pids: Iterable[int]) -> None:
        """Read those of ``pids`` that have waited longest, as far as the credit goes, and forget all others."""
        wanted = dict.fromkeys(pids)
        self._pages = {pid: self._pages[pid] for pid in wanted if pid in self._pages}
        self._last = {pid: self._last[pid] for pid in wanted if pid in self._last}
        if not self._every:
            return
        now = self._clock()
        self._credit = min(MOST_CREDIT, self._credit + SHARE * (now - self._credited))
        self._credited = now
        for pid in sorted(wanted, key=lambda pid: self._last.get(pid, 0.0)):
            if self._credit <= 0 or now - self._last.get(pid, now - self._every) < self._every:
                break
            began = self._clock()
            self._pages[pid] = _read(f"{self._proc}/{pid}/smaps_rollup", began)
            self._last[pid] = began
            self._credit -= self._clock() - began

    def of(self, pid: int) -> Pages:
        """Return what is known of a process."""
        return self._pages.get(pid, NOT_YET) if self._every else SWITCHED_OFF


def _read(path: str, now: float) -> Pages:
    try:
        sizes = sizes_of(read_text(path, whole=False), ("Pss", *_PRIVATE))
    except OSError as error:
        return Pages(reason=reason_of(error))
    if "Pss" not in sizes:
        return Pages(reason="it has no memory of its own")
    private = [sizes[name] for name in _PRIVATE if name in sizes]
    return Pages(at=now, proportional=sizes["Pss"], unique=sum(private) if private else None)
