"""Who was killed for memory: a process is gone, and since it was last seen a cgroup around it has counted a kill."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from agent.sources.host.cgroups import file_in
from agent.sources.host.procfs import numbers_of, read_text
from agent.sources.host.state import KilledState, ProcessState

MAX_KILLED = 16
MAX_NAMES = 256
HOST = ""  # the path that stands for the whole host


@dataclass(slots=True)
class _Seen:
    row: ProcessState
    counts: dict[str, int] = field(default_factory=dict)


class Killed:
    """Remembers, for each process, the kills that the cgroups around it have counted: innermost first, the host last.

    A container's cgroup goes with it, so those around it must speak for it. ``root``: of the cgroups.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._seen: dict[int, _Seen] = {}
        self._killed: deque[KilledState] = deque(maxlen=MAX_KILLED)
        self._totals: dict[str, int] = {}

    def look(
        self, rows: Iterable[ProcessState], gone: Iterable[int], host_kills: int | None, unix_now: float
    ) -> tuple[KilledState, ...]:
        """Take the processes that are there and the pids that are not any more; return who was killed, newest first."""
        known: dict[str, dict[str, int]] = {}
        for pid in gone:
            if seen := self._seen.pop(pid, None):
                self._judge(seen, host_kills, unix_now)
        there = {}
        for row in rows:
            path = row.cgroup or "/"
            if path not in known:
                known[path] = self._counts(path, host_kills)
            there[row.pid] = _Seen(row, known[path])
            self._totals.setdefault(row.engine, 0)
        self._seen = there
        self._totals = dict(list(self._totals.items())[-MAX_NAMES:])
        return tuple(self._killed)

    def totals(self) -> dict[str, int]:
        """Return the kills by engine since the agent started, of engines that are gone, too."""
        return dict(self._totals)

    def _judge(self, seen: _Seen, host_kills: int | None, unix_now: float) -> None:
        row = seen.row
        now = self._counts(row.cgroup or "/", host_kills)
        for path, before in seen.counts.items():
            if path not in now:
                continue  # it went with the process: ask the one around it
            if now[path] > before:
                killed = KilledState(
                    engine=row.engine,
                    role=row.role,
                    rank=row.rank,
                    pid=row.pid,
                    at=unix_now,
                    counted_by=path,
                    certain=path == row.cgroup,
                )
                self._killed.appendleft(killed)
                self._totals[row.engine] = self._totals.get(row.engine, 0) + 1
            return  # the innermost that still counts has the word: a kill further out was not in it

    def _counts(self, path: str, host_kills: int | None) -> dict[str, int]:
        found = {}
        while path:
            with suppress(OSError, KeyError):  # gone, the root of all, or a kernel that counts no kills
                found[path] = numbers_of(read_text(file_in(self._root, path, "memory.events")))["oom_kill"]
            path = "" if path == "/" else path.rpartition("/")[0] or "/"
        if host_kills is not None:
            found[HOST] = host_kills
        return found
