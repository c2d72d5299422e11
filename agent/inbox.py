"""When the sockets of engines are read: each as soon as it has something to say, or all together when somebody asks."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable


class Inbox:
    """Calls ``frame`` with a socket that has something to say; it takes one frame and returns whether there was any.

    At once, from the running loop; or, while ``patient()``, only in :meth:`read`, and all at a time. A node's engines
    send some thirty frames a second: to wake up for each takes longer than what is in it.
    """

    def __init__(self, frame: Callable[[socket.socket], bool], patient: Callable[[], bool], at_once: int) -> None:
        """``at_once``: frames of one socket after which others have their turn."""
        self._frame, self._wants_patience, self._at_once = frame, patient, at_once
        self._patient = False
        self._sockets: dict[int, socket.socket] = {}
        self._poll: select.epoll | None = None

    def add(self, sock: socket.socket) -> None:
        """Listen to ``sock`` from now on."""
        self._sockets[sock.fileno()] = sock
        self._listen(sock)

    def remove(self, sock: socket.socket) -> None:
        """Do so no more; it is still open."""
        if self._sockets.pop(sock.fileno(), None) is not None:
            self._ignore(sock)

    def look(self) -> None:
        """Be as patient as is wanted now."""
        wanted = self._wants_patience()
        if wanted == self._patient:
            return
        for sock in self._sockets.values():
            self._ignore(sock)
        self._patient = wanted
        for sock in self._sockets.values():
            self._listen(sock)

    def read(self) -> None:
        """Take what is there of sockets that are not read at once."""
        if self._poll is None or not self._patient:
            return
        for _ in range(self._at_once):
            ready = self._poll.poll(0)
            for number, _events in ready:
                sock = self._sockets.get(number)
                if sock is not None:  # an earlier frame may have ended it
                    self._frame(sock)
            if not ready:
                return

    def close(self) -> None:
        """Listen to nobody any more."""
        for sock in list(self._sockets.values()):
            self.remove(sock)
        if self._poll is not None:
            self._poll.close()
            self._poll = None

    def _listen(self, sock: socket.socket) -> None:
        if not self._patient:
            asyncio.get_running_loop().add_reader(sock, self._readable, sock)
            return
        if self._poll is None:
            self._poll = select.epoll()
        self._poll.register(sock, select.EPOLLIN)

    def _ignore(self, sock: socket.socket) -> None:
        if not self._patient:
            asyncio.get_running_loop().remove_reader(sock)
        elif self._poll is not None:
            self._poll.unregister(sock)

    def _readable(self, sock: socket.socket) -> None:
        for _ in range(self._at_once):
            if not self._frame(sock):
                return
