"""Which CUDA libraries processes have mapped, and how the agent reaches those files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from agent.sources.driver_calls.program import PLAIN_PATH
from agent.sources.host.procfs import read_text, reason_of

# libcuda.so.1 is a link: maps name the file, such as libcuda.so.550.54; older wheels put a hash into libcudart's name.
_CUDA = re.compile(r"/lib(?P<kind>cuda|cudart)(?:-[0-9a-f]+)?\.so[.0-9]*")
_LINE = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ (?P<device>\S+) (?P<inode>\d+) +(?P<path>/.*)")


class Library(NamedTuple):
    """One file that is mapped. ``path``: as the process sees it; ``reached``: as the agent does."""

    device: str
    inode: int
    path: str
    reached: str
    is_driver: bool


def mapped_in(proc: str, pid: int, maps: str) -> list[Library]:
    """Return the CUDA libraries in the text of /proc/PID/maps, each once; files that are gone are left out."""
    found: dict[tuple[str, int], Library] = {}
    for line in maps.splitlines():
        # Thousands of lines, two of which are meant: the expressions are for those only.
        if "/libcuda" not in line:
            continue
        match = _LINE.fullmatch(line)
        if match is None or not PLAIN_PATH.fullmatch(match["path"]):
            continue
        name = _CUDA.fullmatch(match["path"][match["path"].rindex("/") :])
        if name is not None:
            key, path = (match["device"], int(match["inode"])), match["path"]
            found.setdefault(key, Library(*key, path, f"{proc}/{pid}/root{path}", name["kind"] == "cuda"))
    return list(found.values())


class Mapped:
    """The libraries of processes; one that has the driver's is not looked at again, the others each ``every`` seconds.

    A process's maps are long, and reading them holds up its own mapping of memory.
    """

    def __init__(self, proc: str, every: float = 30.0) -> None:
        self._proc = proc
        self._every = every
        self._known: dict[int, list[Library]] = {}
        self._due: dict[int, float] = {}
        self.unreadable: dict[int, str] = {}

    def look(self, pids: Iterable[int], now: float) -> dict[int, list[Library]]:
        """Return the libraries of each of ``pids`` that has any. ``now``: monotonic seconds."""
        wanted = set(pids)
        for pid in wanted:
            known = self._known.get(pid, [])
            if any(each.is_driver for each in known) or now < self._due.get(pid, now):
                continue
            self._due[pid] = now + self._every
            self.unreadable.pop(pid, None)
            try:
                self._known[pid] = mapped_in(self._proc, pid, read_text(f"{self._proc}/{pid}/maps"))
            except OSError as error:
                self._known.pop(pid, None)
                self.unreadable[pid] = reason_of(error)
        for pid in set(self._due) - wanted:
            self._due.pop(pid)
            self._known.pop(pid, None)
            self.unreadable.pop(pid, None)
        return {pid: found for pid, found in self._known.items() if found}
