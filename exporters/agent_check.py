"""HAProxy's agent-check: a TCP server that says how much of its share an engine is to get.

On a port of one engine it answers at once. On the port for all, whoever connects first sends a line with the engine's
name (``agent-send``). One answer, and the connection ends.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping

from agent.balancer.state import Weight
from agent.errors import KvtideError

MOST_CONNECTIONS = 64
MOST_NAME_BYTES = 256
ASK_SECONDS = 1.0  # in which the name must have come
SEND_SECONDS = 2.0  # in which the answer must be taken
LINGER_SECONDS = 3.0
MOST_WHY = 160  # characters of the reason

Address = tuple[str, int]
Told = Callable[[str], Weight | None]


def answer_of(weight: Weight, *, admin_words: bool = True) -> str:
    """Return the line for HAProxy. What serves is always ``ready up``: after ``drain`` or ``maint`` nothing else brings
    it back, and nobody knows what HAProxy has heard last. Without ``admin_words`` HAProxy's own states are left alone.
    """
    why = "".join(char if " " <= char <= "~" and char != "#" else "?" for char in weight.why)[:MOST_WHY]
    comment = f" # {why}" if why else ""  # HAProxy wants the space before it
    if not admin_words:
        return f"up {weight.percent if weight.serves else 0}%{comment}\n"
    if weight.serves:
        return f"ready up {weight.percent}%{comment}\n"
    return f"{'maint' if weight.mode == 'maint' else 'drain'}{comment}\n"


class AgentCheck:
    """``shared``: address of the port for all engines; ``own``: that of each engine with one of its own. ``told`` gives
    what an engine is to get, None where it does not know it: then nothing is answered, which HAProxy ignores.
    """

    def __init__(
        self, told: Told, shared: Address | None = None, own: Mapping[str, Address] | None = None, *, admin_words: bool
    ) -> None:
        self._told, self._shared, self._own, self._admin_words = told, shared, own or {}, admin_words
        self._servers: list[asyncio.Server] = []
        self._open: set[_Conversation] = set()
        self._asked: dict[str, str] = {}  # the last answer to whom it is about, bounded by what ``told`` knows
        self.refused = 0

    async def start(self) -> None:
        """Listen; raises :class:`KvtideError` that names the address."""
        wanted = [] if self._shared is None else [("", self._shared)]
        for engine, address in [*wanted, *self._own.items()]:
            try:
                server = await asyncio.get_running_loop().create_server(
                    lambda engine=engine: _Conversation(self, engine),  # type: ignore[misc]
                    *address,
                    reuse_address=True,
                )
            except OSError as error:
                await self.close()
                shown = f"{address[0]}:{address[1]}"
                what = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
                key = f"balancer.engines {engine}" if engine else "balancer.listen"
                raise KvtideError(f"{key}: {shown}: {what}") from None
            self._servers.append(server)

    @property
    def addresses(self) -> list[Address]:
        """Where it listens: the shared port first, then those of engines in their order."""
        return [server.sockets[0].getsockname()[:2] for server in self._servers]

    async def close(self) -> None:
        """Stop listening. Who asks for an engine of which something else was told last is told first, if it asks within
        three seconds: HAProxy goes by the last answer for ever.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LINGER_SECONDS
        while self._servers and loop.time() < deadline:
            if all(self._line(engine) in (line, None) for engine, line in self._asked.items()):
                break
            await asyncio.sleep(0.05)
        for server in self._servers:
            server.close()
        for conversation in list(self._open):
            conversation.drop()
        self._servers.clear()

    def admits(self, conversation: _Conversation) -> bool:
        """Return whether there is room for one more, and keep it."""
        if len(self._open) >= MOST_CONNECTIONS:
            self.refused += 1
            return False
        self._open.add(conversation)
        return True

    def ended(self, conversation: _Conversation) -> None:
        """Forget a conversation."""
        self._open.discard(conversation)

    def answer(self, engine: str) -> bytes:
        """Return what is sent about ``engine``, nothing where it is not known."""
        line = self._line(engine)
        if line is None:
            self.refused += 1
            self._asked.pop(engine, None)
            return b""
        self._asked[engine] = line
        return line.encode("ascii")

    def _line(self, engine: str) -> str | None:
        weight = self._told(engine)
        return None if weight is None else answer_of(weight, admin_words=self._admin_words)


class _Conversation(asyncio.Protocol):
    """One connection. ``engine`` is empty where it has to be named."""

    def __init__(self, check: AgentCheck, engine: str) -> None:
        self._check, self._engine = check, engine
        self._heard = bytearray()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answer, or wait for a name."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what create_server makes
        self._transport = transport
        if not self._check.admits(self):
            transport.abort()
        elif self._engine:
            self._say(self._engine)
        else:
            self._deadline = asyncio.get_running_loop().call_later(ASK_SECONDS, self.drop)

    def data_received(self, data: bytes) -> None:
        """Take the line with the name; what comes on an engine's own port, or later, is nothing to us."""
        if self._engine or self._transport is None or self._transport.is_closing():
            return
        self._heard += data[: MOST_NAME_BYTES + 1]
        line, end, _ = bytes(self._heard).partition(b"\n")
        if end:
            self._say(line.decode("utf-8", "replace").strip())
        elif len(self._heard) > MOST_NAME_BYTES:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._check.ended(self)

    def drop(self) -> None:
        """End at once, answered or not."""
        if self._transport is not None:
            self._transport.abort()

    def _say(self, engine: str) -> None:
        if self._transport is None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport.write(self._check.answer(engine))
        self._transport.close()
        # A peer that takes nothing must not keep its place.
        self._deadline = asyncio.get_running_loop().call_later(SEND_SECONDS, self.drop)
