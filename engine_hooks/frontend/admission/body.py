"""A request's body: read once, up to a bound, and handed on to the application as if nobody had."""

from __future__ import annotations

import json
from typing import Any

from engine_hooks.frontend.middleware import Receive, Scope

MAX_BODY_BYTES = 64 << 20


class Body:
    """Stands between the server's ``receive`` and the application. Unread, it changes nothing."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[Any] = []  # messages that the application has yet to get
        self.too_long = False

    async def read(self, most: int = MAX_BODY_BYTES) -> bytes | None:
        """Return the whole body; None when the client has gone, or when it is longer than ``most``."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            self._kept.append(message)
            if message["type"] != "http.request":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                self.too_long = True
                return None
            if not message.get("more_body", False):
                body = parts[0] if len(parts) == 1 else b"".join(parts)
                self.put(body)
                return body

    def put(self, body: bytes) -> None:
        """Have the application get ``body``."""
        self._kept = [{"type": "http.request", "body": body, "more_body": False}]

    async def rest(self) -> Any:
        """Return the next message after the body, which stays for the application."""
        return await self._receive()

    async def __call__(self) -> Any:
        """Return the next message, as the server would."""
        return self._kept.pop(0) if self._kept else await self._receive()


def set_length(scope: Scope, length: int) -> None:
    """Have the request's headers say the length of a body that has been changed."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    scope["headers"] = [*headers, (b"content-length", str(length).encode())]


def with_value(body: bytes, key: str, value: str) -> bytes:
    """Return the JSON object ``body`` with ``key`` set to ``value`` (JSON). Whatever else is in it stays as it is, byte
    for byte: of two keys with one name the last counts.
    """
    text = _plain(body).rstrip(b" \t\r\n")
    comma = b"" if text[:-1].rstrip(b" \t\r\n").endswith(b"{") else b","
    return text[:-1] + comma + f'"{key}":{value}'.encode() + b"}"


def _plain(body: bytes) -> bytes:
    """Return JSON in UTF-8; others of its encodings are told by their zero bytes."""
    if b"\0" not in body[:4]:
        return body.removeprefix(b"\xef\xbb\xbf")
    return json.dumps(json.loads(body)).encode()
