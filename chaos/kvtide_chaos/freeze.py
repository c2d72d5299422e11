"""A process that stands still: stopped by a signal, and let go again whatever happens to us."""

from __future__ import annotations

import os
import signal
import subprocess

from kvtide_chaos.injector import Injector


class FreezeInjector(Injector):
    """Stops the process ``pid`` (SIGSTOP) for ``duration`` at most and lets it go on (SIGCONT) at the end.

    A small process beside us lets it go if we are killed in the middle.
    """

    def __init__(self, pid: int, duration: str | float = "30s") -> None:
        super().__init__(duration)
        if pid <= 1 or pid == os.getpid():
            raise ValueError(f"process {pid} can't be frozen: name another process than 1 and this one")
        self.pid = pid
        self._guard: subprocess.Popen[bytes] | None = None

    def _begin(self) -> None:
        try:
            os.kill(self.pid, 0)  # no such process, or not ours: said at once
        except (ProcessLookupError, OverflowError):
            raise ValueError(f"there is no process {self.pid} here") from None
        except PermissionError:
            raise ValueError(f"process {self.pid} is not ours to stop") from None
        # It reads from a pipe that only we hold: the end of the pipe is our end, however it came.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", f"read -r _; kill -CONT {self.pid}"], stdin=subprocess.PIPE, start_new_session=True
        )
        os.kill(self.pid, signal.SIGSTOP)

    def _step(self, elapsed: float) -> None:
        """Nothing is due in between: it stands still."""

    def _take_back(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate()
