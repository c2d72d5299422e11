"""The engine's end of the link.

One side thread connects, checks who listens, waits for orders and reconnects; another makes a non-blocking ``send`` of
what the engine's own thread hands over. A dead, slow, stopped or hostile agent therefore costs the engine nothing: what
does not fit into the socket is dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from engine_hooks import wire
from engine_hooks.auth import KeyFileError, Session, peer_credentials, read_key, same
from engine_hooks.errands import Errand, Errands
from engine_hooks.levers.orders import ActionResult
from engine_hooks.settings import Settings
from engine_hooks.wire_types import Message

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines

M = TypeVar("M", bound=Message)

RETRY_SECONDS = (0.1, 0.2, 0.4, 0.8)  # then the last for ever: seen again within 2 s of the agent's return
HANDSHAKE_SECONDS = 2.0
TICK_SECONDS = 0.25
HURRY_SECONDS = 0.02
PARTING_SECONDS = 0.1  # for what was handed over before the end
STARTING = "starting"  # the first attempt has not come to anything yet
ORDERS_PER_SECOND, ORDERS_AT_ONCE = 10.0, 20.0  # an order wakes the engine: more than these are turned away


class LinkRefusedError(Exception):
    """We will not talk to whoever listens; the text says why."""


@dataclass(frozen=True, slots=True)
class LinkCallbacks:
    """What the side thread calls. None of them may block.

    ``hello``: the Hello for a session. ``order``: an order whose signature was good. ``tick``: every quarter of a
    second; returns a message to send from the side thread, or None. ``connected``: after the Hello was sent.
    """

    hello: Callable[[Session], wire.Hello]
    order: Callable[[wire.Order], None]
    tick: Callable[[], Message | None]
    connected: Callable[[], None]


class AgentLink:
    """A connection to the agent that heals by itself.

    ``dropped``: frames that did not fit or could not be sent while a connection stood. ``state``: one word, or a
    reason, for people. ``hurry``: tick every 20 ms while connected; set by the engine's thread.
    """

    def __init__(self, settings: Settings, callbacks: LinkCallbacks) -> None:
        self._settings = settings
        self._callbacks = callbacks
        self._socket: socket.socket | None = None
        self._retired: socket.socket | None = None
        self._connecting: socket.socket | None = None
        self._session: Session | None = None
        self._last_order = 0
        self._stop = threading.Event()
        self.dropped = 0
        self.state = STARTING
        self.hurry = False
        self._allowance, self._allowed_at = ORDERS_AT_ONCE, 0.0
        self._next_tick = 0.0
        self._ailing = False  # the last tick raised
        self._errands = Errands("kvtide-send")
        self._thread = threading.Thread(target=self._run, name="kvtide-link", daemon=True)

    def start(self) -> None:
        """Start the side thread. In a forked child the link is dead and its descriptor closed."""
        _links.add(self)
        self._thread.start()

    def close(self) -> None:
        """End the side threads and the connection; returns at once, or when what was handed over has been sent."""
        self._stop.set()
        self._errands.end(PARTING_SECONDS)
        self._disconnect("closed")

    @property
    def up(self) -> bool:
        """Whether frames can be sent now."""
        return self._socket is not None

    def send(self, message: Message) -> None:
        """Send without waiting; from any thread. Counts what could not be sent; raises only on a bad message."""
        sock = self._socket
        if sock is None:
            return
        try:
            sock.send(wire.encode(message), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:  # full, or gone: in both cases the side thread deals with the connection
            self.dropped += 1

    def later(self, errand: Errand) -> None:
        """Have ``errand``, which sends something and does not raise, called by a thread that is not the engine's."""
        if not self._errands.put(errand):
            self.dropped += 1

    def turn_away(self, order: wire.Order, why: str) -> None:
        """Tell the agent that ``order`` is not looked at, so that it need not wait for what became of it."""
        action = order.action
        if action is None:
            self.send(wire.OrderResult(sequence=order.sequence, ok=False, detail=why))
            return
        result = ActionResult(action=action.action, lever=action.lever, op=action.op, ok=False, code="busy", detail=why)
        self.send(result)

    # -- the side thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        attempt = 0
        while not self._stop.is_set():
            try:
                sock = self._connect()
                attempt = 0
                self._serve(sock)
                self._disconnect("agent gone")
            except (LinkRefusedError, KeyFileError) as error:
                self._disconnect(f"refused: {error}")
            except PermissionError as error:
                self._disconnect(
                    f"refused: {self._settings.socket}: {error.strerror} for uid {os.geteuid()} (link.group)"
                )
            except OSError as error:
                self._disconnect(f"no agent at {self._settings.socket}: {error.strerror or error}")
            except Exception as error:
                logger.warning("kvtide: link: %r; trying again", error)
                self._disconnect(f"error: {error!r}")
            delay = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
            attempt += 1
            self._wait(delay)

    def _wait(self, seconds: float) -> None:
        """Wait between attempts, ticking: an idle engine must be woken without an agent too."""
        self._stop.wait(min(seconds, TICK_SECONDS))
        self._tick()
        self._stop.wait(max(0.0, seconds - TICK_SECONDS))

    def _tick(self) -> None:
        """Ask for what there is to be said. What raises there must not end this thread, nor the connection."""
        try:
            message = self._callbacks.tick()
            if message is not None:
                self.send(message)
        except Exception as error:
            if not self._ailing:
                logger.warning("kvtide: link: a tick raised %r; the link goes on", error)
            self._ailing = True
        else:
            self._ailing = False

    def _connect(self) -> socket.socket:
        sock = self._connecting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.settimeout(HANDSHAKE_SECONDS)
            sock.connect(str(self._settings.socket))
            binder = peer_credentials(sock)
            if binder.uid not in self._settings.agent_uids:
                raise LinkRefusedError(
                    f"{self._settings.socket} was bound by uid {binder.uid}; allowed: "
                    f"{sorted(self._settings.agent_uids)} (KVTIDE_AGENT_UIDS)"
                )
            session = self._prove(sock)
            self._session, self._last_order = session, 0
            sock.send(wire.encode(self._callbacks.hello(session)))
            if self._stop.is_set():
                raise LinkRefusedError("closed meanwhile")
        except BaseException:
            sock.close()
            raise
        finally:
            self._connecting = None
        sock.setblocking(False)  # with a timeout, Python waits in send() for room, whatever the flags say
        self._set_state("connected")
        self._socket = sock
        self._callbacks.connected()
        return sock

    def _prove(self, sock: socket.socket) -> Session:
        """Let the listener prove that it has the key; it is told nothing but a random number before."""
        key = read_key(self._settings.key_file)
        banner = self._receive(sock, wire.Banner)
        session = Session(key, banner.nonce, secrets.token_bytes(wire.NONCE_BYTES))
        sock.send(wire.encode(wire.Challenge(nonce=session.engine_nonce)))
        proof = self._receive(sock, wire.Proof)
        if len(banner.nonce) < wire.NONCE_BYTES or not same(proof.mac, session.agent_proof()):
            raise LinkRefusedError(f"who listens at {self._settings.socket} does not have our key")
        return session

    @staticmethod
    def _receive(sock: socket.socket, kind: type[M]) -> M:
        try:
            data = sock.recv(wire.MAX_FRAME_BYTES + 1)
            if not data:
                raise LinkRefusedError(
                    f"the listener hung up on us (uid {os.geteuid()}): do its link.group or link.allow_uids admit it?"
                )
            message = wire.decode(data)
        except TimeoutError:
            raise LinkRefusedError("the listener does not answer") from None
        except wire.WireError as error:
            raise LinkRefusedError(f"the listener does not speak our protocol ({error.reason})") from None
        if not isinstance(message, kind):
            raise LinkRefusedError("the listener speaks out of turn")
        return message

    def _serve(self, sock: socket.socket) -> None:
        """Handle orders until the agent goes away."""
        waiter = select.poll()
        waiter.register(sock, select.POLLIN)
        while not self._stop.is_set():
            period = HURRY_SECONDS if self.hurry else TICK_SECONDS
            readable = waiter.poll(period * 1000)
            if time.monotonic() >= self._next_tick:  # by the clock: a talkative agent must not keep us from it
                self._next_tick = time.monotonic() + period * 0.9
                self._tick()
            if not readable:
                continue
            data = sock.recv(wire.MAX_FRAME_BYTES + 1)
            if not data:
                return
            self._handle(data)

    def _handle(self, data: bytes) -> None:
        """Pass on an order that is signed and new, or say that there are too many; anything else is ignored."""
        session = self._session
        try:
            message = wire.decode(data)
            if not isinstance(message, wire.SignedOrder) or session is None:
                return
            if not same(message.mac, session.sign_order(message.payload)):
                logger.warning("kvtide: an order with a wrong signature was refused")
                return
            order = wire.decode_order(message.payload)
        except wire.WireError:
            return
        if order.sequence <= self._last_order:
            return
        self._last_order = order.sequence
        now = time.monotonic()
        refill = (now - self._allowed_at) * ORDERS_PER_SECOND
        self._allowance, self._allowed_at = min(ORDERS_AT_ONCE, self._allowance + refill), now
        if self._allowance < 1.0:
            self.turn_away(order, f"more than {ORDERS_PER_SECOND:g} orders a second")
            return
        self._allowance -= 1.0
        self._callbacks.order(order)

    def _disconnect(self, state: str) -> None:
        sock, self._socket = self._socket, None
        self._session = None
        self._set_state(state)
        if self._retired is not None:
            self._retired.close()
            self._retired = None
        if sock is not None:
            # Not closed yet: the engine's thread may be inside send(), and a closed descriptor can be reused.
            self._retired = sock
            with contextlib.suppress(OSError):  # the agent hung up first
                sock.shutdown(socket.SHUT_RDWR)

    def _set_state(self, state: str) -> None:
        if state == self.state:
            return
        if state == "connected":
            logger.info("kvtide: link: connected to the agent at %s", self._settings.socket)
        elif state.startswith("refused"):
            logger.warning("kvtide: link: %s", state)
        self.state = state

    def abandon(self) -> None:
        """In a forked child: drop our copies of the descriptors, so that the agent sees when the engine dies.

        Only that: a lock that the side thread held at the fork would never be released here.
        """
        for sock in (self._socket, self._retired, self._connecting):
            if sock is not None:
                sock.close()
        self._socket = self._retired = None


_links: weakref.WeakSet[AgentLink] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for link in list(_links):
        link.abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)
