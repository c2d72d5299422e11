"""A supervisor that is asked by HTTP: only a clear yes counts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent.balancer import http_client
from agent.balancer.http_client import JsonClient
from agent.supervisor.base import RefusedError, SupervisorError, Target
from agent.supervisor.webhook import WebhookSupervisor
from tests.unit.support import PATIENCE

TARGET = Target(engine="llama", instance="i1", host="node", pid=4321, started_at=0.0)


class Hook:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status, self.answer = 200, {"accepted": True}
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                body = json.dumps(hook.answer).encode()
                self.send_response(hook.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    yield found
    found.server.shutdown()
    found.thread.join()
    found.server.server_close()


async def test_it_says_what_is_meant_and_takes_only_a_clear_yes(hook: Hook) -> None:
    supervisor = WebhookSupervisor(JsonClient(f"http://127.0.0.1:{hook.server.server_port}/", None, None))
    await supervisor.restart(TARGET)
    told = {"act": "restart", "engine": "llama", "instance": "i1", "host": "node", "pid": 4321}
    assert hook.asked == [told]
    assert not await supervisor.succeeded(TARGET)
    hook.answer = {"live": True}
    assert await supervisor.succeeded(TARGET)
    for answer in ({"accepted": False, "why": "not now"}, {"accepted": "yes"}, {}):
        hook.answer = answer  # type: ignore[assignment]
        with pytest.raises(RefusedError):
            await supervisor.restart(TARGET)
    hook.status = 500
    with pytest.raises(SupervisorError, match="HTTP 500"):
        await supervisor.restart(TARGET)
    await supervisor.close()


async def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece comes in time: without a limit of its own the engine would be busy for as long as it goes on."""

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not (reader.at_eof() or reader.exception() or writer.is_closing()):
            writer.write(b" ")
            await asyncio.sleep(0.02)
        writer.close()
        gone.set()

    gone = asyncio.Event()
    monkeypatch.setattr(http_client, "WHOLE_SECONDS", 0.3)
    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    client = JsonClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", None, None)
    with pytest.raises(SupervisorError, match=r"no whole answer within 0\.3 s"):
        await WebhookSupervisor(client).restart(TARGET)
    await asyncio.wait_for(gone.wait(), PATIENCE)
    await client.close()
    server.close()


async def test_a_token_that_is_none_is_told(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(b"\xff\xfe")
    with pytest.raises(SupervisorError, match="token: must be a token, in ASCII"):
        await WebhookSupervisor(JsonClient("http://127.0.0.1:9/", token, None)).probe(TARGET)
