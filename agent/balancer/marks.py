"""Engines that people hold, by a command or in a file that a person (or a roll-out) writes; they win over all that is
measured.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from agent.errors import ConfigError
from agent.settings_file import read, shown
from agent.subject import Value

# maint, drain: no new requests. up: all its share, whatever is measured.
Mark = Literal["maint", "drain", "up"]
MARKS: tuple[str, ...] = get_args(Mark)
MOST = 1024
SOMEBODY = "a person"


class PersonMark(Value, frozen=True, kw_only=True):
    """How ``by`` holds an engine, and why."""

    mark: Mark
    by: str = SOMEBODY
    why: str = ""


class Marks:
    """Reads ``file`` when it has changed. ``commanded``: how an engine is held by a command, which wins over the file.
    ``problem``: why what is there can't be used; what was there before stays."""

    def __init__(self, file: Path, commanded: Callable[[str], PersonMark | None] | None = None) -> None:
        self._file, self._commanded = file, commanded
        self._seen: tuple[int, int, int] | None = None
        self._marks: dict[str, Mark] = {}
        self.problem = ""

    def refresh(self) -> None:
        """Look at the file again. Without one nobody holds anything."""
        try:
            status = self._file.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen == self._seen:
                return
            self._seen = seen
            self._marks, self.problem = self._read(), ""
        except FileNotFoundError:
            self._seen, self._marks, self.problem = None, {}, ""
        except OSError as error:
            self.problem = f"balancer.marks_file {self._file}: {error.strerror}"
        except ConfigError as error:
            self.problem = f"balancer.marks_file {error}"

    def of(self, engine: str) -> PersonMark | None:
        """Return how a person holds ``engine``."""
        told = self._commanded(engine) if self._commanded is not None else None
        mark = self._marks.get(engine)
        return told or (None if mark is None else PersonMark(mark=mark))

    def _read(self) -> dict[str, Mark]:
        data = read(self._file)
        if not isinstance(data, dict) or len(data) > MOST:
            raise ConfigError(f"{self._file}: must be a mapping of engines, {MOST} at most")
        for engine, mark in data.items():
            if mark not in MARKS:
                raise ConfigError(f"{self._file}: {shown(engine)}: {shown(mark)}: must be {', '.join(MARKS)}")
        return {str(engine): mark for engine, mark in data.items()}
