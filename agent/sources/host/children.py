"""Processes that engines' processes have started and that nobody watches: counted apart, none twice."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.sources.host.procfs import parse_stat, pids_in, read_text
from agent.sources.host.state import ChildrenState

PAGE = os.sysconf("SC_PAGE_SIZE")


class Kin(NamedTuple):
    """A process as its family sees it."""

    pid: int
    parent: int
    resident_bytes: int


def kin_in(proc: str) -> list[Kin]:
    """Return all processes that /proc shows."""
    found = []
    for pid in pids_in(proc):
        try:
            stat = parse_stat(read_text(f"{proc}/{pid}/stat", whole=False))
        except (OSError, ValueError, IndexError):
            continue  # it has ended, or is hidden
        if stat.state not in "ZX":
            found.append(Kin(pid, stat.parent, stat.resident_pages * PAGE))
    return found


def children(kin: Iterable[Kin], watched: Mapping[int, str]) -> tuple[ChildrenState, ...]:
    """Sum up who descends from a watched process (pid to engine) and is not watched, under the nearest of them."""
    rows = {row.pid: row for row in kin}
    processes: Counter[str] = Counter(dict.fromkeys(watched.values(), 0))
    resident: Counter[str] = Counter()
    for row in rows.values():
        if row.pid in watched:
            continue
        seen, above = {row.pid}, row.parent
        while above not in watched and above in rows and above not in seen:
            seen.add(above)
            above = rows[above].parent
        if above in watched:
            processes[watched[above]] += 1
            resident[watched[above]] += row.resident_bytes
    return tuple(
        ChildrenState(engine=engine, processes=count, resident_bytes=resident[engine])
        for engine, count in sorted(processes.items())
    )
