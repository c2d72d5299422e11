"""Where API servers of one engine find their common table: a file in a folder of this user's own, in memory if it can
be, named by the engine and by the process that started its servers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from engine_hooks.frontend.admission.table import SIZE_BYTES, Process, Table, TableError

_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder in it is private and checked
_PREFIX = "admission-"
_NAME = re.compile(rf"{_PREFIX}[\w.-]{{1,64}}-(\d+)-(\d+)")
_TRIES = 200
_PAUSE_SECONDS = 0.01
_SWEPT = 256  # files looked at when somebody joins


class SharedTable:
    """A table and its file. The last server that leaves removes the file; who comes later removes what the killed left.

    Raises :class:`TableError`.
    """

    def __init__(
        self,
        folder: Path,
        engine_id: str,
        parent: Process,
        number: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        process_of: Callable[[int], Process | None] = Process.of,
    ) -> None:
        name = re.sub(r"[^\w.-]", "_", engine_id)[:64] or "engine"
        self.path = folder / f"{_PREFIX}{name}-{parent.pid}-{parent.start}"
        try:
            _make_private(folder)
            _sweep(folder, process_of)
            self._file = _locked(self.path)
        except OSError as error:
            raise TableError(f"{folder}: {error.strerror}") from None
        try:
            self.table = Table(self._file, clock, process_of, number)
        except BaseException:
            os.close(self._file)
            raise
        self.table.unlock()

    def close(self) -> None:
        """Leave, and remove the file if nobody else is left. May wait for the lock, for two seconds at most."""
        with contextlib.suppress(TableError):
            _wait_for(self._file)
            if not self.table.others():
                self.path.unlink(missing_ok=True)
        self.table.close()
        os.close(self._file)


def folder_of_this_user() -> Path:
    """Return the folder for tables: in memory where there is such a file system, else where temporary files go."""
    base = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return base / f"kvtide-{os.geteuid()}"


def _make_private(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise TableError(f"{folder}: must be a folder of this user that nobody else can enter (mode 0700)")


def _locked(path: Path) -> int:
    """Open the file, made if need be, with its lock; it is the one that has this name now."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _wait_for(file)
            status = os.fstat(file)
            if _is_at(path, status):
                if status.st_size == 0:
                    os.truncate(file, SIZE_BYTES)
                elif status.st_size != SIZE_BYTES:
                    raise TableError(f"{path}: is of another kvtide")
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # the last one that left has removed it meanwhile


def _is_at(path: Path, status: os.stat_result) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (status.st_dev, status.st_ino)


def _wait_for(file: int) -> None:
    """Take the lock; raises :class:`TableError` when nobody gives it back."""
    for _ in range(_TRIES):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
    raise TableError("another API server does not let go of the table")


def _sweep(folder: Path, process_of: Callable[[int], Process | None]) -> None:
    """Remove tables whose engine is gone: a killed one can't do it."""
    for path in list(folder.iterdir())[:_SWEPT]:
        found = _NAME.fullmatch(path.name)
        if found and process_of(int(found[1])) != Process(int(found[1]), int(found[2])):
            with contextlib.suppress(OSError):
                path.unlink()
