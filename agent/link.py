"""The agent's end of the link: admits engines of this node, and feeds their words to the table."""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections import Counter
from collections.abc import Callable

from agent.config import LinkConfig
from agent.connection import Connection, Received, RefusedPeerError
from agent.engines import EngineTable
from agent.inbox import Inbox
from agent.link_path import LinkPath
from agent.state import LinkState
from engine_hooks.auth import PeerCredentials, peer_credentials, peer_groups
from engine_hooks.detail import Detail
from engine_hooks.levers.orders import ActionOrder, ActionResult
from engine_hooks.members import CORE, MemberReport
from engine_hooks.wire import (
    CHECK,
    HISTORY,
    LEVER,
    MAX_FRAME_BYTES,
    WIRE_VERSION,
    Heartbeat,
    Hello,
    Report,
    WireError,
    encode,
)
from engine_hooks.wire_types import Message

logger = logging.getLogger("kvtide.agent")

MAX_CONNECTIONS = 256
MAX_UNPROVEN = 192  # three processes each of 64 engines that all come at once
HANDSHAKE_SECONDS = 5.0
FRAMES_AT_ONCE = 64  # then the loop serves others


class LinkServer:
    """Serves the link on the running event loop. ``heard`` gets what became of levers, with whose word it is.

    ``patient``: whether what engines say may wait until :meth:`read` or :meth:`tick`; what strangers say never waits.
    """

    def __init__(
        self,
        config: LinkConfig,
        table: EngineTable,
        clock: Callable[[], float] = time.monotonic,
        heard: Callable[[str, ActionResult], None] = lambda _instance, _result: None,
        patient: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._heard = heard
        self._table = table
        self._clock = clock
        self._path = LinkPath(config, self._accept)
        self._connections: dict[socket.socket, Connection] = {}
        self._strangers = Inbox(self._frame, lambda: False, FRAMES_AT_ONCE)
        self._proven = Inbox(self._frame, patient, FRAMES_AT_ONCE)
        self._accepted = 0
        self._frames = 0
        self._rejected: dict[str, int] = dict.fromkeys(WireError.REASONS, 0)
        self._refused: dict[str, int] = dict.fromkeys(("uid", "limit", "handshake", "key", "timeout"), 0)

    def start(self) -> None:
        """Bind the path; see :meth:`agent.link_path.LinkPath.bind`."""
        self._path.bind()

    def close(self) -> None:
        """End all connections and give up the path."""
        for sock in list(self._connections):
            self._drop(sock)
        self._strangers.close()
        self._proven.close()
        self._path.close()

    def read(self) -> None:
        """Take what engines have said and nobody has waited for."""
        self._proven.read()

    def tick(self) -> None:
        """Close connections that do not finish the handshake, accept again after a failure, and :meth:`read`."""
        now = self._clock()
        self._proven.look()
        self.read()
        self._path.tick()
        for sock, connection in list(self._connections.items()):
            if connection.hello is None and now - connection.opened > HANDSHAKE_SECONDS:
                self._refuse(sock, "timeout")

    def heal(self) -> str:
        """Bind again if somebody removed our socket; return why engines can't reach us, or nothing."""
        return self._path.heal()

    def state(self) -> LinkState:
        """Return the counts so far."""
        return LinkState(
            socket=str(self._config.socket),
            connections=sum(connection.hello is not None for connection in self._connections.values()),
            accepted=self._accepted,
            frames=self._frames,
            rejected_frames=dict(self._rejected),
            refused_peers=dict(self._refused),
            wire_version=WIRE_VERSION,
            folded_names=self._table.folded_names(),
        )

    def act(self, order: ActionOrder) -> bool:
        """Send ``order`` to the process that it names; return whether that is here. The answer comes to ``heard``."""
        for connection in self._connections.values():
            hello = connection.hello
            if hello is not None and hello.instance == order.instance:
                connection.order(LEVER, action=order)
                return True
        return False

    def order_history(self, instance: str, seconds: float) -> bool:
        """Ask a member to record its allocations for ``seconds``; return whether it is here to be asked.

        It obeys only where its own environment allows it, and bounds the time; the outcome comes with its reports.
        """
        for connection in self._connections.values():
            hello = connection.hello
            if hello is not None and hello.instance == instance and hello.role != CORE:
                connection.order(HISTORY, seconds)
                return True
        return False

    # -- events -------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        sock = self._path.accept()
        if sock is None:
            return
        self._accepted += 1
        self._table.version += 1
        sock.setblocking(False)
        peer = peer_credentials(sock)
        allowed = peer.uid in (0, os.geteuid(), *self._config.allow_uids) or bool(peer_groups(sock) & self._path.gids)
        if not allowed or (len(self._connections) >= MAX_CONNECTIONS and not self._make_room(peer)):
            self._count_refusal("limit" if allowed else "uid", f"pid {peer.pid} uid {peer.uid}")
            sock.close()
            return
        unproven = [known for known, other in self._connections.items() if other.hello is None]
        if len(unproven) >= MAX_UNPROVEN:
            self._refuse(unproven[0], "limit")  # the oldest: strangers that say nothing must not keep engines out
        connection = Connection(self._path.key, peer, lambda message: self._send(sock, message), self._clock())
        self._connections[sock] = connection
        self._strangers.add(sock)
        connection.open()

    def _make_room(self, peer: PeerCredentials) -> bool:
        """End a connection of the user, and of that user's process, that has most of them; return whether one was.

        Not for that process itself, nor for a user's further processes, none of which has more than another.
        """
        users = Counter(other.peer.uid for other in self._connections.values())
        uid = max(users, key=users.__getitem__)
        processes = Counter(other.peer.pid for other in self._connections.values() if other.peer.uid == uid)
        pid = max(processes, key=processes.__getitem__)
        if peer.uid == uid and processes[peer.pid] + 1 >= processes[pid]:
            return False
        newest = [sock for sock, other in self._connections.items() if (other.peer.uid, other.peer.pid) == (uid, pid)][
            -1
        ]
        self._refuse(newest, "limit")
        return True

    def _frame(self, sock: socket.socket) -> bool:
        """Take one frame; return whether there was one, and may be another."""
        connection = self._connections[sock]
        try:
            data = sock.recv(MAX_FRAME_BYTES + 1)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._drop(sock)
            return False
        self._frames += 1
        try:
            message = connection.receive(data, self._clock())
            if message is not None:
                self._apply(connection, message)
            if isinstance(message, Hello):
                self._strangers.remove(sock)
                self._proven.add(sock)
        except WireError as error:
            self._rejected[error.reason] += 1
            self._table.version += 1
        except RefusedPeerError as refusal:
            self._refuse(sock, refusal.reason)
            return False
        return True

    def _apply(self, connection: Connection, message: Received) -> None:
        now = self._clock()
        hello = connection.hello
        if hello is None:
            return
        if isinstance(message, Hello):
            for sock, other in list(self._connections.items()):
                if other is not connection and other.hello is not None and other.hello.instance == hello.instance:
                    # A pid of 0 is that of anybody in another pid namespace: there, only an end makes room.
                    if other.peer != connection.peer or (connection.peer.pid == 0 and not _ended(sock)):
                        # Instances can be read in the state: another process must not take the place of one.
                        connection.hello = None  # nothing that it says counts, and its end is not the other's
                        raise RefusedPeerError("handshake")
                    self._drop(sock)  # it came back before we saw it leave
            self._table.hello(message, connection.peer.pid, now)
            if hello.role == CORE:
                connection.order(CHECK)  # a complete first picture at once
            who = (hello.name, hello.role, connection.peer.pid, hello.engine_version)
            logger.info("engine %s: %s connected: pid %d, vLLM %s", *who)
        elif isinstance(message, Report):
            self._table.report(hello.instance, message, now)
        elif isinstance(message, Detail):
            self._table.detail(hello.instance, message, now)
        elif isinstance(message, MemberReport):
            self._table.member(hello.instance, message, now)
        elif isinstance(message, Heartbeat):
            self._table.heartbeat(hello.instance, message, now)
        elif isinstance(message, ActionResult):
            self._heard(hello.instance, message)
        elif not message.ok:
            logger.warning("engine %s refused an order: %s", hello.name, message.detail)

    def _send(self, sock: socket.socket, message: Message) -> None:
        try:
            sock.send(encode(message))
        except BlockingIOError:
            logger.warning("an engine does not read its orders; one was dropped")
        except OSError:
            return  # it is gone: its end of file comes next

    def _refuse(self, sock: socket.socket, reason: str) -> None:
        peer = self._connections[sock].peer
        self._count_refusal(reason, f"pid {peer.pid} uid {peer.uid}")
        self._drop(sock)

    def _count_refusal(self, reason: str, who: str) -> None:
        self._table.version += 1
        self._refused[reason] += 1
        if self._refused[reason] == 1:
            logger.warning("link: refused %s (%s); further ones are only counted", who, reason)

    def _drop(self, sock: socket.socket) -> None:
        connection = self._connections.pop(sock)
        self._strangers.remove(sock)
        self._proven.remove(sock)
        sock.close()
        if connection.hello is not None:
            logger.info("engine %s: %s disconnected", connection.hello.name, connection.hello.role)
            self._table.disconnected(connection.hello.instance, self._clock())


def _ended(sock: socket.socket) -> bool:
    """Return whether the other end is closed, though what it has sent before may not have been read."""
    waiter = select.poll()
    waiter.register(sock, 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in waiter.poll(0))
