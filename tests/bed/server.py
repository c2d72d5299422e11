"""A server of another project on loopback, as a child process that leaves nothing behind."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bed import net

UNPACKED = Path(__file__).parents[2] / "build" / "unpacked"
START_SECONDS = 120.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.05


def program(path: Path, *names: str, where: str | None = None) -> str:
    """Return ``path`` where setup has laid it, else the first of ``names`` that is installed.

    ``where``: folders to look in, as in ``PATH``, which is the default. Raises ``RuntimeError`` where there is none.
    """
    if path.exists():
        return str(path)
    for name in names:
        if found := shutil.which(name, path=where):
            return found
    raise RuntimeError(f"{path.name} is not here: make setup lays it at {path}")


class Server:
    """One server, with its files and its log in ``folder``. Subclasses say what is run and when it is ready."""

    name: str
    process: subprocess.Popen[bytes]

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._log = folder / f"{self.name}.log"

    def start(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Run ``command`` and wait until it is ready; raises ``RuntimeError`` with its log where it is not in time."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the one who started it, who then ends it in order
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self.name} did not start:\n{self._log.read_text()}")
            time.sleep(POLL_SECONDS)

    def ready(self) -> bool:
        """Return whether it answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it: in order, and by force where that takes long."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def answers(url: str) -> bool:
    """Return whether a GET of ``url`` is a 2xx."""
    try:
        net.get(url)
    except OSError:  # urllib's errors are of these
        return False
    return True
