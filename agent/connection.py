"""One engine's connection, seen from the agent: the handshake and what may follow it. No socket, no clock."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Literal

from engine_hooks import __version__
from engine_hooks.auth import PeerCredentials, Session, same
from engine_hooks.detail import Detail
from engine_hooks.levers.orders import ActionOrder, ActionResult
from engine_hooks.members import CORE, MemberReport
from engine_hooks.wire import (
    NONCE_BYTES,
    Banner,
    Challenge,
    Heartbeat,
    Hello,
    Order,
    OrderResult,
    Proof,
    Report,
    SignedOrder,
    WireError,
    decode,
    encode_order,
)
from engine_hooks.wire_types import Message

RATE = 100.0  # frames per second that a connection may send for long; hooks send ten
BURST = 1000.0  # what may have piled up while we were stopped

Received = Hello | Report | Detail | MemberReport | Heartbeat | OrderResult | ActionResult
# Tuples: a union would be made anew for each frame.
_OF_ALL, _OF_CORES = (OrderResult, ActionResult), (Report, Detail, Heartbeat)
Refusal = Literal["handshake", "key"]


class RefusedPeerError(Exception):
    """The peer failed the handshake; ``reason`` is fit for a label."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason: Refusal = reason


class Connection:
    """The agent's side of the conversation in :mod:`engine_hooks.wire`.

    ``hello`` is None until the peer has shown that it has the key: nothing that it says before counts.
    """

    def __init__(self, key: bytes, peer: PeerCredentials, send: Callable[[Message], None], now: float) -> None:
        self.peer = peer
        self.opened = now
        self.hello: Hello | None = None
        self._key = key
        self._send = send
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._session: Session | None = None
        self._order_sequence = 0
        self._allowance = BURST
        self._allowed_at = now

    def open(self) -> None:
        """Say our first word."""
        self._send(Banner(nonce=self._nonce, agent_version=__version__))

    def receive(self, data: bytes, now: float) -> Received | None:
        """Take a frame; return what the agent should know.

        Raises :class:`WireError` for a frame that is to be dropped and counted, and :class:`RefusedPeerError` when
        the connection is to be closed.
        """
        if self.hello is None:
            return self._shake_hands(data)
        self._allowance = min(BURST, self._allowance + (now - self._allowed_at) * RATE)
        self._allowed_at = now
        if self._allowance < 1:
            raise WireError("rate")
        self._allowance -= 1
        message = decode(data)
        if isinstance(message, _OF_ALL):
            return message
        if isinstance(message, _OF_CORES) and self.hello.role == CORE:
            return message
        if isinstance(message, MemberReport) and self.hello.role != CORE:
            return message
        raise WireError("order", "a frame out of turn")

    def _shake_hands(self, data: bytes) -> Hello | None:
        try:
            message = decode(data)
        except WireError:
            raise RefusedPeerError("handshake") from None
        if self._session is None:
            if not isinstance(message, Challenge) or len(message.nonce) != NONCE_BYTES:
                raise RefusedPeerError("handshake")
            self._session = Session(self._key, self._nonce, message.nonce)
            self._send(Proof(mac=self._session.agent_proof()))
            return None
        if not isinstance(message, Hello):
            raise RefusedPeerError("handshake")
        if not same(message.mac, self._session.engine_proof()):
            raise RefusedPeerError("key")
        self.hello = message
        return message

    def order(self, kind: str, seconds: float = 0.0, action: ActionOrder | None = None) -> None:
        """Send a signed order; only after the Hello. ``seconds``: how long what it asks for shall last."""
        if self._session is None or self.hello is None:
            raise RuntimeError("no order may be sent before the peer has proven itself")
        self._order_sequence += 1
        payload = encode_order(Order(sequence=self._order_sequence, kind=kind, seconds=seconds, action=action))
        self._send(SignedOrder(payload=payload, mac=self._session.sign_order(payload)))
