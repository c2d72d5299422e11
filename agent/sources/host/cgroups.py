"""Memory of cgroups, version 2: use, limits of all ancestors, events, pressure."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from agent.sources.host.procfs import numbers_of, read_text, reason_of
from agent.sources.host.state import PressureState

_PARTS = ("anon", "file", "shmem", "unevictable", "kernel", "slab", "sock", "file_dirty", "inactive_file")
V1 = "this host counts memory by cgroup v1: only v2 is read (boot with systemd.unified_cgroup_hierarchy=1)"


class Limit(NamedTuple):
    """The least limit over a cgroup and its ancestors, and whose it is; None and empty where nobody has one."""

    size: int | None
    path: str


class Memory(NamedTuple):
    """What is read of one cgroup; ``unavailable``: reasons by file."""

    current: int | None
    swap: int | None
    limit: Limit
    limit_current: int | None
    high: Limit
    swap_limit: int | None
    events: dict[str, int] | None
    parts: dict[str, int] | None
    pressure: PressureState | None
    unavailable: dict[str, str]

    @property
    def working_set(self) -> int | None:
        """Current without file pages that nobody used lately."""
        if self.current is None or self.parts is None:
            return None
        return max(0, self.current - self.parts.get("inactive_file", 0))


def path_in(text: str) -> str | None:
    """Return the path of ``/proc/PID/cgroup``'s v2 line, or None without one."""
    return next((line[3:].removesuffix(" (deleted)") for line in text.splitlines() if line.startswith("0::")), None)


def memory_path_in(text: str) -> str | None:
    """Return the path that tells most of where the process runs: v2's, or v1's of the memory controller."""
    path = path_in(text)
    if path is None or path == "/":
        fields = (line.split(":", 2) for line in text.splitlines())
        return next((words[2] for words in fields if len(words) == 3 and "memory" in words[1].split(",")), path)
    return path


def unsupported(root: str) -> str:
    """Return why cgroups under ``root`` (/sys/fs/cgroup) have no memory of version 2; empty where they have."""
    try:
        controllers = read_text(f"{root}/cgroup.controllers").split()
    except OSError:
        v1 = os.path.isdir(f"{root}/memory") or os.path.isdir(f"{root}/unified")
        return V1 if v1 else f"no cgroups at {root}"
    return "" if "memory" in controllers else V1 if os.path.isdir(f"{root}/memory") else "no memory controller here"


def counted_path(root: str, path: str) -> tuple[str, str]:
    """Return the nearest of ``path`` and its ancestors under ``root`` that counts memory, or empty and the reason."""
    if ".." in path.split("/"):
        return "", "outside of the agent's cgroup namespace: give the agent the host's (a container: --cgroupns=host)"
    if not os.path.isdir(root + path):
        return "", "its cgroup is not among those that the agent sees: mount the host's /sys/fs/cgroup"
    while not os.path.exists(file_in(root, path, "memory.current")):
        if path in {"", "/"}:
            return "", "it is in the root cgroup, which has no count and no limit of its own"
        path = path.rpartition("/")[0]
    return path or "/", ""


def read_cgroup(root: str, path: str) -> Memory:
    """Read the cgroup at ``path`` under ``root``; a file that can't be read costs that file."""
    reader = _Reader(root)
    limit = reader.least(path, "memory.max")
    stat = reader.numbers(path, "memory.stat")
    return Memory(
        current=reader.number(path, "memory.current"),
        swap=reader.number(path, "memory.swap.current"),
        limit=limit,
        limit_current=reader.number(limit.path, "memory.current") if limit.size is not None else None,
        high=reader.least(path, "memory.high"),
        swap_limit=reader.least(path, "memory.swap.max").size,
        events=reader.numbers(path, "memory.events"),
        parts=None if stat is None else {name: stat[name] for name in _PARTS if name in stat},
        pressure=reader.pressure(path),
        unavailable=reader.unavailable,
    )


class _Reader:
    """Reads files of cgroups and keeps the reasons of those that fail."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.unavailable: dict[str, str] = {}

    def text(self, path: str, name: str) -> str | None:
        try:
            return read_text(file_in(self._root, path, name))
        except OSError as error:
            if path != "/":  # the root of all lacks most of them
                self.unavailable[name] = "not here" if error.errno == errno.ENOENT else reason_of(error)
            return None

    def number(self, path: str, name: str) -> int | None:
        """Return a file's number; None where there is none, ``max`` included."""
        text = (self.text(path, name) or "").strip()
        return int(text) if text.isdecimal() else None

    def numbers(self, path: str, name: str) -> dict[str, int] | None:
        text = self.text(path, name)
        return None if text is None else numbers_of(text)

    def least(self, path: str, name: str) -> Limit:
        """Return the least of ``name`` over ``path`` and its ancestors; of equals the outermost: it is reached first.

        In a container the topmost that is seen is the container's own, and has a limit like any other.
        """
        found = Limit(None, "")
        while path:
            size = self.number(path, name)
            if size is not None and (found.size is None or size <= found.size):
                found = Limit(size, path)
            path = "" if path == "/" else path.rpartition("/")[0] or "/"
        return found

    def pressure(self, path: str) -> PressureState | None:
        text = self.text(path, "memory.pressure")
        if text is None:
            return None
        rows = {line.split()[0]: dict(word.split("=") for word in line.split()[1:]) for line in text.splitlines()}
        try:
            some, full = rows["some"], rows["full"]
            return PressureState(
                some_ratio=float(some["avg10"]) / 100,
                full_ratio=float(full["avg10"]) / 100,
                some_seconds=int(some["total"]) / 1e6,
                full_seconds=int(full["total"]) / 1e6,
            )
        except (KeyError, ValueError):
            self.unavailable["memory.pressure"] = "not in a form that we know"
            return None


def file_in(root: str, path: str, name: str) -> str:
    """Return where a cgroup's file is."""
    return f"{root}{path.rstrip('/')}/{name}"
