"""Reads many sockets together: waking up costs more than reading, and nobody waits for what engines report."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable

PAUSE_SECONDS = 0.1  # from one look at all sockets to the next


class Batches:
    """Calls back for sockets that can be read: the first time at once, then for all that are due, ten times a second.

    For the running event loop. A callback reads all that is there, or is called again.
    """

    def __init__(self) -> None:
        self._ready = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._pause: asyncio.TimerHandle | None = None

    def add(self, sock: socket.socket, callback: Callable[[], None]) -> None:
        """Call back when ``sock`` can be read or its peer is gone."""
        if not self._callbacks and self._pause is None:
            self._watch()
        self._callbacks[sock.fileno()] = callback
        self._ready.register(sock, select.EPOLLIN)

    def remove(self, sock: socket.socket) -> None:
        """Call back no more; nothing where ``sock`` was not added."""
        if self._callbacks.pop(sock.fileno(), None) is None:
            return
        self._ready.unregister(sock)
        if not self._callbacks:
            self._stop()

    def _watch(self) -> None:
        self._pause = None
        asyncio.get_running_loop().add_reader(self._ready.fileno(), self._read)

    def _stop(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        asyncio.get_running_loop().remove_reader(self._ready.fileno())

    def _read(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._ready.fileno())
        self._pause = loop.call_later(PAUSE_SECONDS, self._watch)
        for number, _ in self._ready.poll(0):
            callback = self._callbacks.get(number)  # an earlier one may have dropped this one
            if callback is not None:
                callback()
