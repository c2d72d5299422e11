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
    """Bundles in ``folder``, which exists: ``max_bytes`` in all. Methods raise OSError where the disk refuses."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def place(self, unix_now: float, why: str) -> Path:
        """Return a path for a new bundle: its time (UTC) and why, as far as that fits a file's name."""
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(unix_now))
        words = re.sub(r"[^a-z0-9]+", "-", why.lower()).strip("-")[:_NAME_LENGTH]
        return self._folder / f"{when}-{words}{SUFFIX}"

    def bundles(self) -> list[tuple[Path, int]]:
        """Return the bundles that there are, oldest first, with their sizes in bytes."""
        found = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            with suppress(FileNotFoundError):
                about = path.lstat()
                if not stat.S_ISREG(about.st_mode):
                    continue  # none of ours
                found.append((about.st_mtime, path, about.st_size))
        return [(path, size) for _, path, size in sorted(found)]

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

    def sweep(self, before: float) -> None:
        """Remove what was begun before (Unix seconds) and never fetched or finished."""
        for path in self.parts():
            with suppress(FileNotFoundError):
                about = path.lstat()
                if about.st_mtime < before and not stat.S_ISDIR(about.st_mode):
                    path.unlink()
