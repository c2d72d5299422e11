"""One HTTP connection, and how long it may keep us waiting."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Literal

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from agent.web.settings import WebSettings

REQUEST_SECONDS = 10.0  # from the first byte of a request to the last of its head; from connecting to the first byte
IDLE_SECONDS = 75.0  # between two requests
UNREAD_SECONDS = 20.0  # in which not one byte of an answer was taken
HEAD_BYTES = 16 << 10
UNREAD_BYTES = 64 << 20  # that wait to be taken, over all connections

_quiet = logging.getLogger("kvtide.http")  # what a stranger sends is counted, not logged
_quiet.setLevel(logging.CRITICAL)


class WebConnection(H11Protocol):
    """uvicorn's HTTP/1.1; ``settings``: those that were in force when it was accepted."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        *,
        settings: WebSettings,
        closed: Callable[[], None],
        served: Callable[[], None],
        refuse: Callable[[str], None],
    ) -> None:
        super().__init__(config, server_state, {})
        self.settings = settings
        self._closed, self._tell_served, self._refuse = closed, served, refuse
        self.logger = _quiet
        self.waits_since = time.monotonic()
        self._served = 0
        self._begun: float | None = None  # the request that is on its way in
        self._unread, self._unread_since = 0, 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, unless the client's certificate has none of the names that it must have."""
        super().connection_made(transport)
        if self.settings.sans and not self.settings.sans & _names(transport.get_extra_info("peercert")):
            self._refuse("certificate")
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._closed()

    def data_received(self, data: bytes) -> None:
        """Take what has come; bytes that make no request buy no time."""
        if self._begun is None and self.waits:
            self._begun = time.monotonic()
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Tell the client that this is no HTTP; what follows a head that was taken may be none either."""
        cycle: Any = self.cycle
        if not self.waits:  # the application answers still: nobody hears it any more
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # an answer has begun, or has been given while the body was still to come
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request. One that was sent before its turn (pipelining) has none: others wait as well."""
        self.waits_since, self._begun = time.monotonic(), None
        self._served += 1
        self._tell_served()
        if self.conn.trailing_data[0]:
            self.transport.close()
        super().on_response_complete()

    @property
    def waits(self) -> bool:
        """Whether it is the client's turn to ask."""
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        return cycle is None or bool(cycle.response_complete)

    @property
    def unread(self) -> int:
        """Bytes that the client has not taken."""
        return self.transport.get_write_buffer_size()

    def overdue(self, now: float) -> Literal["", "slow", "unread"]:
        """Return for what it is to be ended; a client that merely has nothing to ask is ended for nothing."""
        unread = self.unread
        if unread:
            if unread != self._unread:
                self._unread, self._unread_since = unread, now
            elif now - self._unread_since > UNREAD_SECONDS:
                return "unread"
            return ""
        self._unread = 0
        if not self.waits:
            return ""
        if self._begun is not None:
            return "slow" if now - self._begun > REQUEST_SECONDS else ""
        return "slow" if now - self.waits_since > (IDLE_SECONDS if self._served else REQUEST_SECONDS) else ""

    def abort(self) -> None:
        """End at once, whatever was not sent."""
        self.transport.abort()


def _names(certificate: dict[str, Any] | None) -> frozenset[str]:
    """Return the subject's alternative names of a certificate, whatever their kind."""
    return frozenset(value for _, value in (certificate or {}).get("subjectAltName", ()))
