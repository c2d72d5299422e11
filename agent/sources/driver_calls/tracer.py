"""The child process: bpftrace, started, listened to, and ended."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

END_SECONDS = 2.0
KILL_SECONDS = 10.0
LIST_SECONDS = 10.0
# The maps' size, by both names that this setting has had.
_ENV = {"BPFTRACE_MAP_KEYS_MAX": "8192", "BPFTRACE_MAX_MAP_KEYS": "8192"}
_PARTS = ("@h", "@s", "@f")


class Tracer:
    """One run of bpftrace with ``program``. It dies with us: it writes each second, and then nobody reads."""

    def __init__(self, bpftrace: str, program: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._maps: dict[str, Any] = {}
        self._words: deque[str] = deque(maxlen=20)
        self._attached = False
        self.heard = clock()
        self._child = subprocess.Popen(
            [bpftrace, "-f", "json", "-e", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | _ENV,
        )
        self._thread = threading.Thread(target=self._listen, name="kvtide-bpftrace", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """The child's pid."""
        return self._child.pid

    @property
    def attached(self) -> bool:
        """Whether the probes are in place."""
        with self._lock:
            return self._attached

    def maps(self) -> dict[str, Any]:
        """Return the program's maps as they were at the last full second."""
        with self._lock:
            return self._maps

    def ended(self) -> str:
        """Return how it ended and what it said; empty while it runs."""
        code = self._child.poll()
        if code is None:
            return ""
        self._thread.join(END_SECONDS)  # what it has said last
        if code < 0:
            return f"bpftrace was ended by signal {-code}"
        with self._lock:
            return f"bpftrace ended with status {code}: {_telling(self._words) or 'it has not said why'}"

    def close(self) -> None:
        """End it and wait for it; the probes go with it."""
        self._child.terminate()
        try:
            self._child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            with suppress(subprocess.TimeoutExpired):  # the kernel takes its time to remove probes
                self._child.wait(KILL_SECONDS)
        self._thread.join(END_SECONDS)

    def _listen(self) -> None:
        out = self._child.stdout
        assert out is not None  # noqa: S101 - asked for above
        parts: dict[str, Any] = {}
        with out:
            for line in out:
                try:
                    message = msgspec.json.decode(line)
                    kind, data = message["type"], message["data"]
                except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
                    if word := line.decode(errors="replace").strip():
                        with self._lock:
                            self._words.append(word[:300])
                    continue
                if kind == "map" and isinstance(data, dict):
                    parts |= {name: data[name] for name in _PARTS if name in data}
                    if "@now" not in data:
                        continue
                    # It says "attached_probes" before it attaches; the timer's first word comes when all are in place.
                    with self._lock:
                        self.heard, self._attached, self._maps = self._clock(), True, dict(parts)


def listing(bpftrace: str, path: str, began: Callable[[subprocess.Popen[bytes]], None]) -> str:
    """Return what bpftrace lists of a library's functions; raises OSError, subprocess.SubprocessError.

    ``began`` gets the child as soon as there is one, so that somebody else can end it.
    """
    with subprocess.Popen(
        [bpftrace, "-l", f"uprobe:{path}:cu*"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        began(child)
        try:
            found, errors = child.communicate(timeout=LIST_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
    if child.returncode:
        raise OSError(0, _telling(errors.decode(errors="replace").splitlines()) or "it lists nothing")
    return found.decode(errors="replace")


def _telling(words: Iterable[str]) -> str:
    """Return the line that tells why it ended. A limit that it could not raise is called an error too, and is none."""
    lines = [line.strip()[:300] for line in words if line.strip() and "RLIMIT_MEMLOCK" not in line]
    return next((line for line in lines if "ERROR" in line), lines[0] if lines else "")
