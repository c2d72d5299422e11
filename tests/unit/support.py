"""The two ends of the link as a test plays them: a listener for the hooks, a peer for the agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

from agent.link import LinkServer
from engine_hooks import wire
from engine_hooks.auth import Session
from engine_hooks.link import LinkCallbacks
from engine_hooks.settings import Settings
from tests.unit.builders import make_hello

PATIENCE = 60.0  # how long anything is waited for that should come at once

KEY = bytes(range(32))


class Clock:
    """Time that moves only when told to."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def write_key(path: Path, key: bytes = KEY) -> Path:
    path.write_text(key.hex() + "\n")
    path.chmod(0o640)
    return path


def eventually(check: Callable[[], object]) -> None:
    """Poll until ``check`` holds; fails after a while."""
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.005)


async def eventually_async(check: Callable[[], object]) -> None:
    """The same, while the event loop runs."""
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "did not happen"
        await asyncio.sleep(0.005)


async def proven(server: LinkServer, number: int = 1) -> None:
    """Wait until so many peers of ``server`` have shown that they have the key."""
    await eventually_async(lambda: server.state().connections == number)


class Peer:
    """One accepted connection of :class:`Listener`, blocking with patience."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(PATIENCE)

    def receive_raw(self) -> bytes:
        return self.sock.recv(wire.MAX_FRAME_BYTES + 1)

    def receive(self) -> wire.Message:
        return wire.decode(self.receive_raw())

    def send(self, message: wire.Message) -> None:
        self.sock.send(wire.encode(message))

    def banner(self) -> bytes:
        nonce = secrets.token_bytes(wire.NONCE_BYTES)
        self.send(wire.Banner(nonce=nonce, agent_version="test"))
        return nonce

    def shake_hands(self, key: bytes = KEY) -> tuple[Session, wire.Hello]:
        """Play the agent's part to the Hello."""
        nonce = self.banner()
        challenge = self.receive()
        assert isinstance(challenge, wire.Challenge)
        session = Session(key, nonce, challenge.nonce)
        self.send(wire.Proof(mac=session.agent_proof()))
        hello = self.receive()
        assert isinstance(hello, wire.Hello)
        return session, hello

    def everything(self) -> list[bytes]:
        """All frames to the end of the connection."""
        frames = []
        with contextlib.suppress(ConnectionResetError):  # the peer closed before it had read all
            while data := self.receive_raw():
                frames.append(data)
        return frames


class Listener:
    """A socket that listens at ``path`` and does nothing by itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.bind(str(path))
        self._sock.listen(8)
        self._sock.settimeout(PATIENCE)
        self._peers: list[Peer] = []

    def accept(self) -> Peer:
        peer = Peer(self._sock.accept()[0])
        self._peers.append(peer)
        return peer

    def close(self) -> None:
        for peer in self._peers:
            peer.sock.close()
        self._sock.close()
        self._path.unlink(missing_ok=True)


class Recorder:
    """The engine's side of :class:`AgentLink`: what it was told."""

    def __init__(self, **hello: object) -> None:
        self.orders: queue.Queue[wire.Order] = queue.Queue()
        self.connects = 0
        self.hellos = 0
        self.ticks = 0
        self.beat: wire.Message | None = None
        self._hello = hello
        self.callbacks = LinkCallbacks(self._say_hello, self.orders.put, self._tick, self._connected)

    def _say_hello(self, session: Session) -> wire.Hello:
        self.hellos += 1
        return make_hello(**self._hello, mac=session.engine_proof())

    def _tick(self) -> wire.Message | None:
        self.ticks += 1
        return self.beat

    def _connected(self) -> None:
        self.connects += 1


def settings_for(path: Path, key_file: Path, *uids: int) -> Settings:
    return Settings(
        enabled=True, socket=path, key_file=key_file, agent_uids=frozenset(uids or {os.geteuid()}), engine_name=None
    )


class RawPeer:
    """A hand-made engine at the agent's socket, on the running event loop."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.setblocking(False)

    async def connect(self) -> RawPeer:
        self.sock.connect(self._path)
        return self

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(self.sock, data), PATIENCE)

    async def receive(self) -> bytes:
        """The next frame; empty at the end of the connection, however it ended."""
        try:
            read = asyncio.get_running_loop().sock_recv(self.sock, wire.MAX_FRAME_BYTES)
            return await asyncio.wait_for(read, PATIENCE)
        except ConnectionResetError:
            return b""

    async def challenge(self, key: bytes) -> Session:
        """Connect, and go as far as the agent's proof."""
        banner = wire.decode(await self.receive())
        assert isinstance(banner, wire.Banner)
        session = Session(key, banner.nonce, secrets.token_bytes(wire.NONCE_BYTES))
        await self.send(wire.encode(wire.Challenge(nonce=session.engine_nonce)))
        assert wire.decode(await self.receive()) == wire.Proof(mac=session.agent_proof())
        return session

    async def shake_hands(self, key: bytes, **hello: object) -> Session:
        session = await self.challenge(key)
        await self.send(wire.encode(make_hello(**hello, mac=session.engine_proof())))
        return session
