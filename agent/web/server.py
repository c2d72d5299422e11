"""uvicorn without signal handlers, for the daemon has them, and without its ten wake-ups a second."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

SERVER_SECONDS = 1.0
SERVING: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "lifespan": "off",
    "ws": "none",
    "server_header": False,
    "proxy_headers": False,  # who is at the other end is the kernel's word
    "timeout_graceful_shutdown": 2,
}


class QuietServer(uvicorn.Server):
    """Serves on ``listener`` until :meth:`end`."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self._listener = listener
        self._wake = asyncio.Event()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve; ``sockets``: others than its own."""
        await super().serve(sockets or [self._listener])

    def end(self) -> None:
        """Stop serving, in order."""
        self.should_exit = True
        self._wake.set()

    async def main_loop(self) -> None:
        """Wait for the end; where answers have a date, they get a new one once a second."""
        loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            self.look()
            timer = loop.call_later(SERVER_SECONDS, self._wake.set) if self.config.date_header else None
            await self._wake.wait()
            if timer is not None:
                timer.cancel()
            self._wake.clear()

    def look(self) -> None:
        """Do what is due once a second."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield
