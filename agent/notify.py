"""Tells systemd how the agent is, by the protocol of sd_notify(3); says nothing where no systemd listens."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, MutableMapping

BEATS = 4  # in the time after which a watchdog bites


class Notifier:
    """``environment`` loses what is for us alone: children must not speak in our name. ``clock``: monotonic seconds.

    A beat is sent by :meth:`turned` only, so that a main loop that hangs is killed.
    """

    def __init__(
        self, environment: MutableMapping[str, str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        variables = os.environ if environment is None else environment
        self._clock = clock
        address = variables.pop("NOTIFY_SOCKET", "")
        usec, pid = variables.pop("WATCHDOG_USEC", ""), variables.pop("WATCHDOG_PID", "")
        self._every: float | None = None
        if usec.isdecimal() and int(usec) and pid in ("", str(os.getpid())):
            self._every = int(usec) / 1e6 / BEATS
        self._next = 0.0
        self._status = ""
        self._socket: socket.socket | None = None
        if address[:1] in ("/", "@"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
            self._address = f"\0{address[1:]}" if address[0] == "@" else address

    def ready(self) -> None:
        """Say that it serves: after the start, and after a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Say that a reload has begun."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Say that it ends, in order."""
        self._send("STOPPING=1")

    def turned(self, status: str) -> None:
        """Say that the main loop has turned once more, and how it is where that has changed."""
        if status != self._status:
            self._status = status
            self._send(f"STATUS={' '.join(status.split())}")
        now = self._clock()
        if self._every is not None and now >= self._next:
            self._next = now + self._every
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if self._socket is not None:
            # systemd that does not read, or is gone: the agent goes on; a lost beat is followed by the next
            with contextlib.suppress(OSError):
                self._socket.sendto(text.encode(errors="replace"), self._address)
