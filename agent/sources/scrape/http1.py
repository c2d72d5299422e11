"""HTTP/1.1 GETs over one connection that is kept: bounded in time, in the size of heads and in that of bodies.

By hand, because a page is fetched each second: http.client takes two and a half times as long (most of it in the mail
parser that reads its heads), httpx2 ten times, and neither bounds the time of a head that comes byte by byte.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

MAX_HEAD_BYTES = 64 * 1024
_CHUNK = 256 * 1024
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: ([^\r\n]*))?")
_BODYLESS = {204, 304}
_MOST_DIGITS = 18  # of a length


class HttpError(Exception):
    """What came is no answer, or too much of one; the text says why."""


class Answer(NamedTuple):
    """``headers`` by name in lower case. The body is as it was sent."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes


class Connection:
    """To one server. ``tls``: None for plain HTTP; ``clock``: monotonic seconds, in which deadlines are given."""

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._clock = clock
        self._sock: socket.socket | None = None
        usual = port == (80 if tls is None else 443)
        named = f"[{host}]" if ":" in host else host
        self._name = named if usual else f"{named}:{port}"

    def get(self, target: str, headers: Mapping[str, str], deadline: float, limit: int) -> Answer:
        """Return the answer, whose body has ``limit`` bytes at most; raises :class:`HttpError` and ``OSError``."""
        lines = [
            f"GET {target} HTTP/1.1",
            f"Host: {self._name}",
            *(f"{name}: {text}" for name, text in headers.items()),
        ]
        request = "\r\n".join((*lines, "", "")).encode("ascii")
        kept = self._sock is not None
        try:
            try:
                stream = self._send(request, deadline)
            except ConnectionError:
                if not kept:
                    raise
                # A server may end a connection that it kept, just when we use it.
                self.close()
                stream = self._send(request, deadline)
            return self._answer(stream, limit)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; a GET under way on another thread fails at once."""
        sock, self._sock = self._sock, None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _send(self, request: bytes, deadline: float) -> _Stream:
        """Send the request and wait for the first bytes of an answer; raises ``ConnectionError`` when none comes."""
        left = deadline - self._clock()
        if left <= 0:
            raise TimeoutError
        sock = self._sock
        if sock is None:
            sock = socket.create_connection((self._host, self._port), left)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self._host)
            self._sock = sock
        sock.settimeout(left)
        sock.sendall(request)
        stream = _Stream(sock, deadline, self._clock)
        if not stream.more():
            raise ConnectionResetError
        return stream

    def _answer(self, stream: _Stream, limit: int) -> Answer:
        first, *lines = stream.until(b"\r\n\r\n").split(b"\r\n")
        found = _STATUS.fullmatch(first)
        if found is None:
            raise HttpError("what answers does not speak HTTP")
        headers = {}
        for line in lines:
            name, _, text = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = text.strip()
        version, status, reason = found[1], int(found[2]), (found[3] or b"").decode("latin-1")
        length = headers.get("content-length", "")
        ends_with_connection = False
        if status in _BODYLESS:
            body = b""
        elif "chunked" in headers.get("transfer-encoding", "").lower():
            body = _chunks(stream, limit)
        elif length.isascii() and length.isdecimal():
            body = stream.exactly(int(length[:_MOST_DIGITS]), limit)
        else:
            body, ends_with_connection = stream.rest(limit), True
        if ends_with_connection or stream.buffer or _closes(version, headers):
            self.close()
        return Answer(status, reason, headers, body)


class _Stream:
    """What a socket brings until the deadline."""

    def __init__(self, sock: socket.socket, deadline: float, clock: Callable[[], float]) -> None:
        self._sock, self._deadline, self._clock = sock, deadline, clock
        self.buffer = bytearray()

    def more(self) -> bool:
        """Wait for more; False at the end of the connection."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        data = self._sock.recv(_CHUNK)
        self.buffer += data
        return bool(data)

    def until(self, mark: bytes) -> bytes:
        """Return and take what is before ``mark``."""
        while (at := self.buffer.find(mark)) < 0:
            if len(self.buffer) > MAX_HEAD_BYTES:
                raise HttpError("what answers does not speak HTTP, or says too much before its page")
            if not self.more():
                raise HttpError("the connection ended before the page did")
        return self._take(at, len(mark))

    def exactly(self, size: int, limit: int) -> bytes:
        """Return and take ``size`` bytes."""
        if size > limit:
            raise HttpError(_too_large(limit))
        while len(self.buffer) < size:
            if not self.more():
                raise HttpError("the connection ended before the page did")
        return self._take(size, 0)

    def rest(self, limit: int) -> bytes:
        """Return and take all that comes."""
        while len(self.buffer) <= limit:
            if not self.more():
                return self._take(len(self.buffer), 0)
        raise HttpError(_too_large(limit))

    def _take(self, size: int, dropped: int) -> bytes:
        taken = bytes(self.buffer[:size])
        del self.buffer[: size + dropped]
        return taken


def _chunks(stream: _Stream, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit
    while True:
        text = stream.until(b"\r\n").partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", text):
            raise HttpError("the page comes in chunks that can't be told apart")
        size = int(text, 16)
        if not size:
            while stream.until(b"\r\n"):  # what may follow the last chunk
                pass
            return b"".join(parts)
        if size > left:
            raise HttpError(_too_large(limit))
        parts.append(stream.exactly(size, left))
        stream.until(b"\r\n")
        left -= size


def _closes(version: bytes, headers: Mapping[str, str]) -> bool:
    said = headers.get("connection", "").lower()
    return "close" in said or (version == b"0" and "keep-alive" not in said)


def _too_large(limit: int) -> str:
    return f"the page has more than {limit // 1024 // 1024} MiB"
