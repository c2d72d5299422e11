"""A supervisor that is asked by HTTP: only a clear yes counts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from agent.balancer.http_client import JsonClient
from agent.supervisor.base import RefusedError, SupervisorError, Target
from agent.supervisor.webhook import WebhookSupervisor

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
