"""What this process has of the host's memory, and may have: for an agent that sees neither its pid nor its cgroup.

Read on a link's side thread, now and then. Each number is None where it can't be read here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from engine_hooks.wire_types import Message

EVERY_SECONDS = 10.0
PROC, CGROUPS = Path("/proc/self"), Path("/sys/fs/cgroup")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAX_DEPTH = 32  # of a cgroup: limits are looked for on the way up

Size = Annotated[int, msgspec.Meta(ge=0, le=2**60)]


class OwnMemoryRow(Message, frozen=True, kw_only=True):
    """Sizes in bytes. ``resident``: this process's memory in RAM, pages that it shares with others included.

    ``cgroup``: what its cgroup (version 2) uses, all processes in it; ``cgroup_limit``: the least limit over that and
    the cgroups around it as far as this process sees them, None where there is no limit either.
    """

    resident_bytes: Size | None
    cgroup_bytes: Size | None = None
    cgroup_limit_bytes: Size | None = None


class OwnMemory:
    """Reads it each ten seconds; ``proc`` is this process's folder in /proc, ``cgroups`` the tree's root."""

    def __init__(self, proc: Path = PROC, cgroups: Path = CGROUPS) -> None:
        self._proc, self._cgroups = proc, cgroups
        self._next = 0.0

    def again(self) -> None:
        """Have it read at the next opportunity: there is somebody new to be told."""
        self._next = 0.0

    def fresh(self, now: float) -> OwnMemoryRow | None:
        """Return it where it is time to tell it again. ``now``: monotonic seconds."""
        if now < self._next:
            return None
        self._next = now + EVERY_SECONDS
        folders = list(self._folders())
        uses = (_number(folder / "memory.current") for folder in folders)
        limits = [limit for folder in folders if (limit := _number(folder / "memory.max")) is not None]
        return OwnMemoryRow(
            resident_bytes=resident_bytes(self._proc),
            cgroup_bytes=next((use for use in uses if use is not None), None),
            cgroup_limit_bytes=min(limits, default=None),
        )

    def _folders(self) -> Iterator[Path]:
        """Yield the folders of this process's cgroup and of those around it, its own first; none where it has none."""
        try:
            lines = (self._proc / "cgroup").read_text().splitlines()
        except (OSError, ValueError):
            return
        path = next((line[3:] for line in lines if line.startswith("0::/")), None)
        if path is None or ".." in path.split("/"):  # version 1 alone, or outside of what this namespace shows
            return
        parts = [part for part in path.split("/") if part][:MAX_DEPTH]
        for depth in range(len(parts), -1, -1):
            yield self._cgroups.joinpath(*parts[:depth])


def resident_bytes(proc: Path = PROC) -> int | None:
    """Return a process's memory in RAM; None where /proc does not tell it."""
    try:
        return int((proc / "statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def _number(file: Path) -> int | None:
    """Return the number in a file; None where it is not there, or says that there is no limit."""
    try:
        number = int(file.read_text())
    except (OSError, ValueError):
        return None
    return number if 0 <= number <= 1 << 60 else None
