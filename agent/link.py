"""The agent's end of the link: binds the path, admits engines of this node, and feeds their words to the table."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import logging
import os
import select
import socket
import stat
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from agent.config import LinkConfig
from agent.connection import Connection, Received, RefusedPeerError
from agent.engines import EngineTable
from agent.errors import ConfigError, KvtideError
from agent.inbox import Inbox
from agent.state import LinkState
from engine_hooks.auth import KeyFileError, PeerCredentials, create_key, peer_credentials, peer_groups, read_key
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
        self._key = b""
        self._key_seen: tuple[int, int, int] | None = None
        self._gids: frozenset[int] = frozenset()
        self._listener: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        self._accepting = True
        self._connections: dict[socket.socket, Connection] = {}
        self._strangers = Inbox(self._frame, lambda: False, FRAMES_AT_ONCE)
        self._proven = Inbox(self._frame, patient, FRAMES_AT_ONCE)
        self._accepted = 0
        self._frames = 0
        self._rejected: dict[str, int] = dict.fromkeys(WireError.REASONS, 0)
        self._refused: dict[str, int] = dict.fromkeys(("uid", "limit", "handshake", "key", "timeout"), 0)

    def start(self) -> None:
        """Make the key if there is none, bind, and listen.

        Raises :class:`ConfigError`, or :class:`KvtideError` where another listens.
        """
        path = self._config.socket
        _prepare_folder(path)
        group = _group_id(self._config.group)
        self._gids = frozenset(self._config.allow_gids) | ({group} if group is not None else frozenset())
        key_path = self._config.key_path
        try:
            create_key(key_path)
            self._key = read_key(key_path)
            self._key_seen = _mark(key_path)
        except (KeyFileError, OSError) as error:
            raise ConfigError(f"link.key_file: {error}") from None
        if group is not None:
            _give_to_group(key_path, group)
        self._listener = _bind(path, self._config.mode, group)
        status = path.stat()
        self._identity = (status.st_dev, status.st_ino)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def close(self) -> None:
        """End all connections and remove the path, if it is still ours."""
        for sock in list(self._connections):
            self._drop(sock)
        self._strangers.close()
        self._proven.close()
        if self._listener is not None:
            self._unlisten()
            with contextlib.suppress(OSError):
                status = self._config.socket.stat()
                if (status.st_dev, status.st_ino) == self._identity:
                    self._config.socket.unlink()

    def read(self) -> None:
        """Take what engines have said and nobody has waited for."""
        self._proven.read()

    def tick(self) -> None:
        """Close connections that do not finish the handshake, accept again after a failure, and :meth:`read`."""
        now = self._clock()
        self._proven.look()
        self.read()
        if not self._accepting and self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)
            self._accepting = True
        for sock, connection in list(self._connections.items()):
            if connection.hello is None and now - connection.opened > HANDSHAKE_SECONDS:
                self._refuse(sock, "timeout")

    def heal(self) -> str:
        """Bind again if somebody removed our socket; return why engines can't reach us, or nothing."""
        path = self._config.socket
        try:
            status = path.stat()
        except FileNotFoundError:
            if self._listener is not None:
                logger.warning("link: %s was removed; binding it again", path)
            self._unlisten()
            try:
                self.start()
            except KvtideError as error:
                return str(error)
            return ""
        except OSError as error:
            return f"link.socket: {path}: {error.strerror}"
        if self._listener is None or (status.st_dev, status.st_ino) != self._identity:
            return f"link.socket: {path}: another process has bound it; engines that restart will not find this agent"
        return self._key_problem()

    def _key_problem(self) -> str:
        """Return why engines that connect anew will not know our key, or nothing. Only a file that changed is read.

        It is not written anew: who removes it wants another key, and that comes with the next start.
        """
        path = self._config.key_path
        try:
            seen = _mark(path)
            if seen == self._key_seen:
                return ""
            if read_key(path) == self._key:
                self._key_seen = seen
                return ""
            what = "has another key than this agent"
        except FileNotFoundError:
            what = "was removed"
        except (OSError, KeyFileError) as error:
            what = f"can't be read ({error})"
        return f"link.key_file: {path}: {what}; engines that connect now are refused: restart the agent"

    def _unlisten(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

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
        if self._listener is None:
            return
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Out of descriptors, say: the listener stays readable, so look again at the next tick, not at once.
            logger.warning("link: can't accept: %s", error.strerror)
            asyncio.get_running_loop().remove_reader(self._listener)
            self._accepting = False
            return
        self._accepted += 1
        self._table.version += 1
        sock.setblocking(False)
        peer = peer_credentials(sock)
        allowed = peer.uid in (0, os.geteuid(), *self._config.allow_uids) or bool(peer_groups(sock) & self._gids)
        if not allowed or (len(self._connections) >= MAX_CONNECTIONS and not self._make_room(peer)):
            self._count_refusal("limit" if allowed else "uid", f"pid {peer.pid} uid {peer.uid}")
            sock.close()
            return
        unproven = [known for known, other in self._connections.items() if other.hello is None]
        if len(unproven) >= MAX_UNPROVEN:
            self._refuse(unproven[0], "limit")  # the oldest: strangers that say nothing must not keep engines out
        connection = Connection(self._key, peer, lambda message: self._send(sock, message), self._clock())
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


def _mark(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is written, replaced, or shut to readers; raises ``OSError``."""
    status = path.stat()
    return status.st_ino, status.st_ctime_ns, status.st_size


def _group_id(name: str | None) -> int | None:
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(
            f"link.group: {name!r}: there is no such group here; create it or leave the key out"
        ) from None


def _give_to_group(path: Path, group: int) -> None:
    try:
        if path.stat().st_gid != group:
            os.chown(path, -1, group)
    except OSError as error:
        raise ConfigError(
            f"link.group: {path}: can't be given to that group ({error.strerror}); "
            "run as root or as a member of the group, or leave the key out"
        ) from None


def _prepare_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise _unusable(path, error.strerror) from None


def _unusable(path: Path, why: str | None) -> ConfigError:
    return ConfigError(
        f"link.socket: {path}: {why}; choose a path in a folder that this user can write, "
        "by --socket PATH or link.socket in the configuration, and set KVTIDE_SOCKET for the engines"
    )


def _bind(path: Path, mode: int, group: int | None) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        _remove_stale(path)
        sock.bind(str(path))
        if group is not None:
            _give_to_group(path, group)
        path.chmod(mode)
        sock.listen(MAX_CONNECTIONS)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _unusable(path, error.strerror) from None
    except KvtideError:
        sock.close()
        raise
    return sock


def _remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens on any more.

    Raises :class:`ConfigError` when it isn't one, :class:`KvtideError` when somebody listens.
    """
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise _unusable(path, "exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise KvtideError(str(_unusable(path, f"is in use ({error.strerror or error})"))) from None
        holder = peer_credentials(probe)
    raise KvtideError(
        f"link.socket: {path}: pid {holder.pid} (uid {holder.uid}) listens there already; "
        "stop it, or choose another path by --socket PATH or link.socket"
    )
