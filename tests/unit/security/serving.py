"""The guarded HTTP side on a free port of this loop, with a small application behind it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent.state import AgentState
from agent.web.listener import WebServer
from agent.web.web import Web
from exporters.http import build_app
from tests.unit.builders import make_state


@asynccontextmanager
async def serving(file: Path | None = None, state: AgentState | None = None) -> AsyncIterator[tuple[WebServer, Web]]:
    """Serve until the end of the block."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    web, told = Web(file), state or make_state()

    async def reload() -> str:
        return ""

    server = WebServer(build_app(lambda: told, reload=reload), listener, web)
    task = asyncio.create_task(server.serve())
    await asyncio.sleep(0)  # its task begins: connections wait in the listener's queue until it accepts
    try:
        yield server, web
    finally:
        server.end()
        await task


def port(server: WebServer) -> int:
    """Return where it listens."""
    return int(server.address.rpartition(":")[2])


async def raw(server: WebServer, request: bytes) -> bytes:
    """Send ``request`` and return all that is answered until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port(server))
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def until(what: object, server: WebServer) -> None:
    """Let the server look once a turn until ``what()`` holds; the test's own limit of time ends it otherwise."""
    while not what():  # type: ignore[operator]
        server.look()
        await asyncio.sleep(0.01)
