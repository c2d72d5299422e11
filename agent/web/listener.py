"""Accepts the connections of the agent's HTTP port: so many and no more, each by the settings of its moment.

uvicorn would accept without limit, with one TLS context for ever, and give who connects and says nothing all the time
in the world.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from functools import partial

import uvicorn

from agent.errors import ConfigError
from agent.web.connection import HEAD_BYTES, IDLE_SECONDS, UNREAD_BYTES, WebConnection
from agent.web.guard import App, Guard
from agent.web.server import SERVER_SECONDS, SERVING, QuietServer
from agent.web.state import HttpState
from agent.web.web import Web

logger = logging.getLogger("kvtide.agent")

MOST_CONNECTIONS = 512  # handshakes included
HANDSHAKE_SECONDS = 5.0
ACCEPT_AGAIN_SECONDS = 0.1  # after a failure: out of descriptors, say


class _Client:
    """One accepted connection: a task that shakes hands, then a protocol."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.task: asyncio.Task[None] | None = None
        self.protocol: WebConnection | None = None

    @property
    def keeps_waiting(self) -> bool:
        """Whether it is the client's turn: to shake hands, to ask, to read."""
        return self.protocol is None or self.protocol.waits or self.protocol.unread > 0

    def end(self) -> None:
        """End it at once."""
        if self.protocol is not None:
            self.protocol.abort()
        elif self.task is not None:
            self.task.cancel()


class WebServer(QuietServer):
    """Serves ``app`` on ``listener``, guarded by ``web``."""

    def __init__(self, app: App, listener: socket.socket, web: Web) -> None:
        host, port = listener.getsockname()[:2]
        self._loopback = host.startswith("127.") or host == "::1"
        config = uvicorn.Config(
            Guard(app, web, local=self._loopback),
            http=WebConnection,
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_keep_alive=int(IDLE_SECONDS),
            **SERVING,
        )
        super().__init__(config, listener)
        self._web = web
        listener.setblocking(False)
        self._clients: dict[_Client, None] = {}  # who has waited longest comes first
        self._per_address: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = f"{f'[{host}]' if ':' in host else host}:{port}"
        web.changed = self._renew
        if not self._loopback and not (web.settings.tls is not None and web.settings.asks_who):
            logger.warning(
                "http.listen: %s is not this host alone, and whoever reaches it can read all that this agent knows: "
                "give it TLS and users by http.web_config_file (docs/security.md)",
                self.address,
            )

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"{'https' if self._web.settings.tls is not None else 'http'}://{self.address}"

    def state(self) -> HttpState:
        """Return what is open and what was turned away."""
        return HttpState(
            listen=self.address,
            loopback=self._loopback,
            tls=self._web.settings.tls is not None,
            known=self._web.settings.asks_who,
            problem=self._web.problem,
            connections=len(self._clients),
            refused=dict(self._web.refused),
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        self.servers = []
        self._start(self._accept())
        if self._web.watches:
            self._start(self._watch())
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, let answers that are under way be sent."""
        for task in list(self._tasks):
            task.cancel()
        await super().shutdown(sockets)

    def look(self) -> None:
        """End what keeps us waiting for too long, and the largest that nobody reads where they are too many bytes."""
        now = time.monotonic()
        for client in list(self._clients):
            if client.protocol is not None and (why := client.protocol.overdue(now)):
                self._refused(why, client)
        unread = sorted(
            ((each.protocol.unread, each) for each in self._clients if each.protocol is not None),
            key=lambda pair: pair[0],
        )
        total = sum(size for size, _ in unread)
        while total > UNREAD_BYTES:
            size, client = unread.pop()
            self._refused("unread", client)
            total -= size

    def _start(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self._listener)
            except OSError as error:
                logger.warning("http: can't accept: %s", error.strerror)
                self._make_room(0)
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            self._make_room(MOST_CONNECTIONS - 1)
            client = _Client(address[0])
            self._clients[client] = None
            self._per_address[client.address] += 1
            client.task = loop.create_task(self._begin(client, sock))
            client.task.add_done_callback(partial(self._begun, client, sock))
            await asyncio.sleep(0)  # sock_accept does not wait where one is there: others must have their turn

    async def _begin(self, client: _Client, sock: socket.socket) -> None:
        settings = self._web.settings
        closed, served = partial(self._forget, client), partial(self._last, client)

        def protocol() -> WebConnection:
            return WebConnection(
                self.config,
                self.server_state,
                settings=settings,
                closed=closed,
                served=served,
                refuse=self._refused_one,
            )

        timeout = HANDSHAKE_SECONDS if settings.tls is not None else None
        _, made = await asyncio.get_running_loop().connect_accepted_socket(
            protocol, sock, ssl=settings.tls, ssl_handshake_timeout=timeout, ssl_shutdown_timeout=timeout
        )
        client.protocol = made
        if settings.tls is not self._web.settings.tls:
            made.shutdown()  # the settings were exchanged while it shook hands

    def _begun(self, client: _Client, sock: socket.socket, task: asyncio.Task[None]) -> None:
        if client.protocol is not None:
            return
        self._forget(client)
        sock.close()
        if not task.cancelled() and task.exception() is not None:
            self._refused_one("handshake")

    def _make_room(self, most: int) -> None:
        """End connections until there are ``most`` (0: end one), of the address that has most of them."""
        while self._clients and len(self._clients) > most:
            heaviest = max(self._per_address, key=self._per_address.__getitem__)
            waiting = (each for each in self._clients if each.address == heaviest and each.keeps_waiting)
            oldest = (each for each in self._clients if each.address == heaviest)
            self._refused("crowded", next(waiting, None) or next(oldest))
            if not most:
                return

    def _forget(self, client: _Client) -> None:
        if client in self._clients:
            del self._clients[client]
            self._per_address[client.address] -= 1
            if not self._per_address[client.address]:
                del self._per_address[client.address]

    def _last(self, client: _Client) -> None:
        """Its waiting begins anew."""
        if client in self._clients:
            del self._clients[client]
            self._clients[client] = None

    def _refused(self, why: str, client: _Client) -> None:
        self._refused_one(why)
        self._forget(client)
        client.end()

    def _refused_one(self, why: str) -> None:
        self._web.refused[why] += 1

    def _renew(self) -> None:
        """Let connections of another TLS end when their answer is sent: the next one begins by the new settings."""
        for client in list(self._clients):
            if client.protocol is not None and client.protocol.settings.tls is not self._web.settings.tls:
                client.protocol.shutdown()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(SERVER_SECONDS)
            try:
                loaded = await asyncio.to_thread(self._web.look)
            except ConfigError as error:
                self._web.stays(error)
            else:
                if loaded is not None:
                    self._web.take(loaded)
                else:
                    self._web.problem = ""  # the file is as it was
