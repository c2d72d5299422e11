"""A wall clock that is set for one process alone: a C library that is loaded before all others."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


class SetClock:
    """``environment`` is what a process needs to see this clock; ``step`` sets it, also while that process runs."""

    def __init__(self, folder: Path) -> None:
        self._file, self._library = folder / "clock", folder / "libclock.so"
        self.step(0)
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
        subprocess.run(["cc", *flags, "-o", str(self._library), str(HERE / "clock.c")], check=True)

    def environment(self) -> dict[str, str]:
        """Return the variables."""
        return {"LD_PRELOAD": str(self._library), "KVTIDE_TEST_CLOCK": str(self._file)}

    def step(self, seconds: int) -> None:
        """Let the clock be so many seconds beside the machine's."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:  # the same file: it is mapped
            file.write(struct.pack("=q", seconds))
