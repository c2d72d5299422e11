"""One series of chunk files: appended to, closed after a while, and thrown away when they are old.

A chunk is a bundle of its own (docs/bundle.md), so that what a crash leaves of the last one can be read up to the tear.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.bundle.format import SUFFIX, BundleError, Header, Writer, cut_tail, read

MOST_FILES = 400  # of one series: an agent that restarts again and again makes short ones
_NUMBER = re.compile(r"-(\d{8,12})$")

Raw = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A file of a series. ``size``: bytes; ``changed``: monotonic seconds of its last write, or as if: see Series."""

    path: Path
    number: int
    size: int
    changed: float


class Series:
    """Chunks ``NAME-NUMBER.kvtide`` in ``folder``, which exists. Methods raise OSError where the disk refuses.

    A new one is begun after ``chunk_seconds`` or ``chunk_bytes``; each stays for ``keep_seconds``. Times are monotonic:
    a wall clock that is set makes nothing old. What an agent before this one has left is as old as this agent and what
    was recorded since, so that the time in which nothing ran does not count.
    """

    def __init__(self, folder: Path, name: str, *, chunk_seconds: float, chunk_bytes: int, keep_seconds: float) -> None:
        self._folder = folder
        self._name = name
        self._chunk_seconds = chunk_seconds
        self._chunk_bytes = chunk_bytes
        self._keep_seconds = keep_seconds
        self._writer: Writer | None = None
        self._path: Path | None = None
        self._ends = 0.0
        self._now = self._wrote = 0.0
        self._changed: dict[Path, float] = {}  # of those that are not open

    def chunks(self) -> list[Chunk]:
        """Return the files that there are, oldest first."""
        found = []
        for path in self._folder.glob(f"{self._name}-*{SUFFIX}"):
            if number := _NUMBER.search(path.stem):
                with suppress(FileNotFoundError):
                    about = path.lstat()
                    if not stat.S_ISREG(about.st_mode):
                        continue  # none of ours
                    found.append(Chunk(path, int(number[1]), about.st_size, self._changed.get(path, self._now)))
        return sorted(found, key=lambda chunk: chunk.number)

    def repair(self, now: float) -> int:
        """Cut off what a crash has torn, throw away what it has left without a header; return how many were torn."""
        self._now = now
        torn = 0
        for chunk in self.chunks()[-1:]:
            cut = cut_tail(chunk.path)
            if cut is None:
                chunk.path.unlink(missing_ok=True)
            torn = int(cut != 0)
        self._date()
        return torn

    def _date(self) -> None:
        """Give each file that is not dated yet a time: nothing is known of when it was but how long it took to write.

        That, too, is by a wall clock, but it is never more than a chunk may take.
        """
        began = self._now
        for chunk in reversed(self.chunks()):
            if chunk.path in self._changed:
                began = min(began, self._changed[chunk.path])
                continue
            self._changed[chunk.path] = began
            try:
                took = chunk.path.stat().st_mtime - read(chunk.path).header.created_at
            except (OSError, BundleError):
                continue
            began -= min(self._chunk_seconds, max(0.0, took))

    def due(self, now: float) -> bool:
        """Return whether a new chunk has to begin before the next record, which is of ``now``."""
        self._now = now
        return self._writer is None or now >= self._ends or self._writer.size >= self._chunk_bytes

    def begin(self, header: Header, now: float) -> None:
        """Close the chunk that is open and begin a new one."""
        self.close()
        last = self.chunks()[-1:]
        number = last[0].number + 1 if last else 1
        while os.path.lexists(path := self._folder / f"{self._name}-{number:08}{SUFFIX}"):
            number += 1  # something that is none of ours: it stays as it is
        try:
            self._writer = Writer(path, header)
        except OSError:
            path.unlink(missing_ok=True)  # a full disk would collect empty ones
            raise
        self._path = path
        self._ends = now + self._chunk_seconds

    def append(self, records: Iterable[Raw]) -> int:
        """Append to the chunk that is open and return by how many bytes it grew.

        One that can't be written to is given up, for its end may be torn.
        """
        writer = self._writer
        if writer is None:
            raise OSError("no chunk is open")
        before, self._wrote = writer.size, self._now
        try:
            for kind, body in records:
                writer.raw(kind, body)
        except OSError:
            writer.abandon()
            self._left()
            raise
        return writer.size - before

    def close(self) -> None:
        """End the chunk that is open."""
        writer = self._writer
        self._left()
        if writer is not None:
            writer.close()

    def _left(self) -> None:
        """Note when the chunk that was open was last written to."""
        if self._path is not None:
            self._changed[self._path] = self._wrote
        self._writer = self._path = None

    def throw_away(self, now: float) -> None:
        """Remove chunks that are older than they may be, and those beyond the greatest number."""
        closed = self._closed()
        self._changed = {chunk.path: chunk.changed for chunk in closed}
        for number, chunk in enumerate(reversed(closed)):
            if number >= MOST_FILES or now - chunk.changed > self._keep_seconds:
                chunk.path.unlink(missing_ok=True)

    def throw_oldest(self) -> bool:
        """Remove the oldest chunk that is not open; return whether there was one."""
        for chunk in self._closed():
            chunk.path.unlink(missing_ok=True)
            return True
        return False

    def _closed(self) -> list[Chunk]:
        return [chunk for chunk in self.chunks() if chunk.path != self._path]
