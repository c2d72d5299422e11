"""Stands before the application: nobody is answered who has not shown who they are, where that is asked for."""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from agent.web.connection import HEAD_BYTES
from agent.web.credentials import BusyError
from agent.web.state import KNOWN
from agent.web.web import Web

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

logger = logging.getLogger("kvtide.agent")

LOG_SECONDS = 60.0  # between two tracebacks of an answer that fails: whoever asks must not fill the log
_CHALLENGE = (b"www-authenticate", b'Basic realm="kvtide", charset="UTF-8"')
_TEXT = (b"content-type", b"text/plain; charset=utf-8")


class Guard:
    """Serves ``app`` by the settings that are in force when a request comes. ``local``: only this host reaches us."""

    def __init__(self, app: App, web: Web, *, local: bool = False) -> None:
        self._app, self._web, self._local = app, web, local
        self._logged = float("-inf")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 or 429, or let the application answer."""
        if scope["type"] != "http":
            return
        if _head_bytes(scope) > HEAD_BYTES:  # it came in one piece: while it is being waited for the connection counts
            await _answer(send, 431, b"the head of the request is too large\n", (b"connection", b"close"))
            return
        settings, credentials = self._web.settings, self._web.credentials
        known = settings.tls is not None and settings.tls.verify_mode == ssl.CERT_REQUIRED

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.setdefault("headers", [])
                there = {name.lower() for name, _ in own}
                message["headers"] = [*own, *(each for each in settings.headers if each[0] not in there)]
            await send(message)

        if settings.users:
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            client = scope.get("client")
            try:
                header = given[0] if len(given) == 1 else None
                known = await credentials.check(header, client[0] if client else "") is not None
            except BusyError:
                self._web.refused["busy"] += 1
                await _answer(
                    send_on, 429, b"too many wrong passwords; try again in a minute\n", (b"retry-after", b"60")
                )
                return
            if not known:
                self._web.refused["credentials"] += 1
                await _answer(send_on, 401, b"who are you? (basic_auth_users)\n", _CHALLENGE)
                return
        elif self._local and settings.tls is None and not _of_this_host(scope["headers"]):
            # A page in a browser here whose name was made to point to this host: its own origin, by all appearances.
            self._web.refused["host"] += 1
            await _answer(send_on, 421, b"not by that name: http://localhost, or users by http.web_config_file\n")
            return
        scope[KNOWN] = known
        try:
            await self._app(scope, receive, send_on)
        except Exception:
            if time.monotonic() - self._logged > LOG_SECONDS:
                self._logged = time.monotonic()
                logger.exception("http: %s could not be answered", scope["path"])
            raise


def _head_bytes(scope: Scope) -> int:
    fields = sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])
    return len(scope.get("raw_path") or b"") + len(scope.get("query_string", b"")) + fields


def _of_this_host(headers: list[tuple[bytes, bytes]]) -> bool:
    """Return whether a request means this host by a name that nobody else can give it."""
    for name, value in headers:
        if name != b"host":
            continue
        host = value.decode("latin-1").strip().lower()
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if host in ("", "localhost", socket.gethostname().lower()) or host.endswith(".localhost"):
            continue
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
    return True


async def _answer(send: Send, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
    size = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [_TEXT, size, *more]})
    await send({"type": "http.response.body", "body": body})
