"""Who is at the other end of the control socket, by the kernel's word."""

from __future__ import annotations

import asyncio
import pwd
import socket
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from engine_hooks.auth import peer_credentials

PREFIX = "uid:"  # of the host that a request on the control socket seems to come from


def name_of(uid: int) -> str:
    """Return a user's name, its number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


class PeerProtocol(H11Protocol):
    """uvicorn's HTTP with the peer's uid in the place of an address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the uid of whoever has connected."""
        super().connection_made(transport)
        peer = peer_credentials(cast(socket.socket, transport.get_extra_info("socket")))
        self.client = (f"{PREFIX}{peer.uid}", peer.pid)
