"""The bundles of incidents on disk: a bounded number of them, the newest stay."""

from __future__ import annotations

import re
import stat
import time
from contextlib import suppress
from pathlib import Path

from agent.bundle.format import SUFFIX

MOST_BUNDLES = 20
PART = ".part"
FETCH_SECONDS = 600.0  # in which one that was asked for is fetched
_NAME_LENGTH = 60


class Shelf:
    """Bundles in ``folder``, which exists: ``max_bytes`` in all. Methods raise OSError where the disk refuses.

    The wall clock may be set: it names files, and does not say which of ours is older.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._placed: dict[Path, int] = {}  # those of this agent, in their order
        self._number = 0
        self._since: dict[Path, float] = {}  # when what is to be fetched was seen first, monotonic

    def place(self, unix_now: float, why: str) -> Path:
        """Return a path for a new bundle: its time (UTC) and why, as far as that fits a file's name."""
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(unix_now))
        words = re.sub(r"[^a-z0-9]+", "-", why.lower()).strip("-")[:_NAME_LENGTH]
        path = self._folder / f"{when}-{words}{SUFFIX}"
        self._number += 1
        self._placed[path] = self._number
        return path

    def bundles(self) -> list[tuple[Path, int]]:
        """Return the bundles that there are, oldest first, with their sizes in bytes."""
        found = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            with suppress(FileNotFoundError):
                about = path.lstat()
                if not stat.S_ISREG(about.st_mode):
                    continue  # none of ours
                found.append((self._placed.get(path, 0), about.st_mtime, path, about.st_size))
        self._placed = {path: number for number, _, path, _ in found if number}
        return [(path, size) for _, _, path, size in sorted(found)]

    def tidy(self) -> None:
        """Remove the oldest bundles where there are too many, or too much of them."""
        bundles = self.bundles()
        size = sum(each for _, each in bundles)
        for number, (path, each) in enumerate(bundles):
            if len(bundles) - number <= MOST_BUNDLES and size <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            size -= each

    def parts(self) -> list[Path]:
        """Return what was begun, or asked for, and is not fetched yet."""
        return list(self._folder.glob(f"*{PART}"))

    def sweep(self, now: float) -> None:
        """Remove what has been there for a while (``now`` is monotonic) and was never fetched or finished."""
        self._since = {path: self._since.get(path, now) for path in self.parts()}
        for path, since in self._since.items():
            if now - since > FETCH_SECONDS:
                _remove(path)

    def clear(self) -> None:
        """Remove all that was begun and never fetched or finished."""
        for path in self.parts():
            _remove(path)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
