"""A library with CUDA's names for allocation calls, and a process that calls it as told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("cuda_stub.c")
# Reads lines "FUNCTION SIZE TIMES" and answers each when it is done; ends with its input.
_CALLER = """
import ctypes, sys
library, out = ctypes.CDLL(sys.argv[1]), ctypes.c_ulonglong()
print("ready", flush=True)
for line in sys.stdin:
    name, size, times = line.split()
    for _ in range(int(times)):
        getattr(library, name)(ctypes.byref(out), ctypes.c_size_t(int(size)), None, ctypes.c_ulonglong(0))
    print("done", flush=True)
"""


def build(folder: Path, name: str = "libcuda.so.1") -> Path:
    """Compile the library into ``folder``; the C compiler is cc."""
    target = folder / name
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", target, SOURCE], check=True)
    return target


class Caller:
    """A process that has the library mapped. Use it in a ``with``."""

    def __init__(self, library: Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CALLER, str(library)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer("ready")

    @property
    def pid(self) -> int:
        return self._child.pid

    def call(self, name: str, microseconds: int, times: int) -> None:
        """Make ``times`` calls of a function that take so long each, and return when they are done."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{name} {microseconds} {times}\n")
        self._child.stdin.flush()
        self._answer("done")

    def _answer(self, word: str) -> None:
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == f"{word}\n", "the caller has ended"

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait(10)
        self._child.stdout.close()
