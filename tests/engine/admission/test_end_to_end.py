"""Real servers on both sides: clients, a uvicorn with kvtide's middlewares, and uvicorns that requests are sent on to.

Reserved blocks for named tenants, tiers by length, and a ladder of models by pressure; all answers are streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn

from engine_hooks.frontend.admission.gate import Gate
from engine_hooks.frontend.admission.lever import Admission
from engine_hooks.frontend.admission.middleware import AdmissionMiddleware
from engine_hooks.frontend.admission.size import Pool
from engine_hooks.frontend.admission.table import Table
from engine_hooks.frontend.admission.upstreams import Upstreams
from engine_hooks.frontend.middleware import TenantMiddleware
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.guard import Guard

POOL = Pool(block_tokens=16, blocks=100, ranks=1, model_tokens=20_000)
PATH = "/v1/completions"
PIECES = (b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n")


class Model:
    """A server that streams three pieces; ``go`` is waited for after the first. ``asked``: the bodies that it got."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[dict[str, Any]] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.asked.append(json.loads(body))
        headers = [(b"content-type", b"text/event-stream"), (b"x-served-by", self.name.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": PIECES[0], "more_body": True})
        await self.go.wait()
        for piece in PIECES[1:]:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Seen:
    """An answer as a client has it. ``first``: set when its first piece has come."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    @property
    def by(self) -> str:
        return self.headers.get("x-served-by", "")

    @property
    def decision(self) -> str:
        return self.headers["x-kvtide-decision"]


class Servers:
    """``here`` with the middlewares before it, and the others."""

    def __init__(self) -> None:
        self.models = {name: Model(name) for name in ("here", "middle", "long", "int8", "int4", "lite")}
        self.lever: Admission
        self.url = ""

    def order(self, **rules: Any) -> None:
        self.lever.apply(rules)

    async def post(self, tokens: int, output: int = 16, tenant: str = "acme", seen: Seen | None = None) -> Seen:
        found = seen or Seen()
        body = {"model": "tiny", "prompt": list(range(tokens)), "max_tokens": output, "stream": True}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url + PATH, json=body, headers={"x-tenant": tenant}) as response,
        ):
            found.status = response.status
            found.headers = {name.lower(): value for name, value in response.headers.items()}
            async for piece in response.content.iter_any():
                found.body += piece
                found.first.set()
        return found


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


def run(folder: Path, work: Callable[[Servers], Awaitable[None]]) -> None:
    async def bounded() -> None:
        servers = Servers()
        async with contextlib.AsyncExitStack() as stack:
            urls = {
                name: await stack.enter_async_context(served(model))
                for name, model in servers.models.items()
                if name != "here"
            }
            file = folder / "upstreams.json"
            file.write_text(
                json.dumps(
                    {
                        "by_tokens": [
                            {"name": "here", "below": 2048},
                            {"name": "middle", "below": 8192, "url": urls["middle"]},
                            {"name": "long", "url": urls["long"]},
                        ],
                        "by_pressure": [
                            {"name": "int8", "at": 85, "url": urls["int8"]},
                            {"name": "int4", "at": 90, "url": urls["int4"]},
                            {"name": "lite", "at": 95, "url": urls["lite"], "model": "lite"},
                        ],
                    }
                )
            )
            env = {
                "KVTIDE_TENANT_FROM": "header:x-tenant",
                "KVTIDE_TRUSTED_PROXIES": "127.0.0.0/8",
                "KVTIDE_UPSTREAMS": str(file),
            }
            settings, guard = TenantSettings.from_environment(env), Guard()
            gate = Gate(settings, Upstreams.from_environment(env))
            gate.pool, gate.served, gate.why_not = POOL, frozenset({"tiny"}), ""
            servers.lever = Admission(gate, POOL, lambda: Table(None, time.monotonic))
            inner = AdmissionMiddleware(servers.models["here"], gate=gate, guard=guard)
            app = TenantMiddleware(inner, settings=settings, guard=guard, verify=None)
            servers.url = await stack.enter_async_context(served(app))
            await asyncio.wait_for(work(servers), 60.0)
            assert guard.errors == {}

    asyncio.run(bounded())


def test_what_is_reserved_for_a_tenant_is_left_free_by_others_and_there_for_it(tmp_path: Path) -> None:
    async def work(servers: Servers) -> None:
        servers.order(reserved={"gold": 40}, retry_after=3)
        here = servers.models["here"]
        here.go.clear()
        seen = Seen()
        running = asyncio.create_task(servers.post(880, 32, "acme", seen))  # 57 of the 60 blocks that are anybody's
        await seen.first.wait()
        assert seen.body == PIECES[0], "the stream has begun, and its blocks are counted"
        refused = await servers.post(64, 16, "acme")
        assert (refused.status, refused.headers["retry-after"]) == (429, "3")
        assert json.loads(refused.body)["error"]["type"] == "rate_limit_error"
        gold = Seen()
        other = asyncio.create_task(servers.post(560, 16, "gold", gold))  # 36 blocks of its own 40
        await gold.first.wait()
        here.go.set()
        for answer in (await running, await other):
            assert (answer.status, answer.decision, answer.body) == (200, "admitted", b"".join(PIECES))
        again = await servers.post(64, 16, "acme")
        assert again.status == 200, "what has ended is given back"
        servers.order(retry_after=3)
        assert (await servers.post(1500, 16, "acme")).status == 200, "without the reservation there is room"

    run(tmp_path, work)


def test_lengths_have_their_servers_and_what_is_said_there_comes_back_as_a_stream(tmp_path: Path) -> None:
    async def work(servers: Servers) -> None:
        servers.order(retry_after=1)
        for tokens, name in ((100, "here"), (2047, "here"), (2048, "middle"), (8191, "middle"), (8192, "long")):
            answer = await servers.post(tokens)
            assert (answer.status, answer.by, answer.body) == (200, name, b"".join(PIECES)), tokens
            assert answer.decision == ("admitted" if name == "here" else f"sent on; upstream={name}")
            assert servers.models[name].asked[-1]["prompt"] == list(range(tokens))
        middle = servers.models["middle"]
        middle.go.clear()
        seen = Seen()
        running = asyncio.create_task(servers.post(3000, seen=seen))
        await seen.first.wait()
        assert seen.body == PIECES[0], "a piece is here before the other server has gone on"
        middle.go.set()
        await running

    run(tmp_path, work)


def test_under_pressure_smaller_models_answer_step_by_step_and_the_answer_says_so(tmp_path: Path) -> None:
    async def work(servers: Servers) -> None:
        steps = ((84, "here"), (85, "int8"), (90, "int4"), (94.9, "int4"), (95, "lite"), (50, "here"))
        for pressure, name in steps:
            servers.order(pressure=pressure)
            answer = await servers.post(100)
            assert (answer.status, answer.by, answer.body) == (200, name, b"".join(PIECES)), pressure
            assert answer.decision == ("admitted" if name == "here" else f"sent on; upstream={name}")
        assert servers.models["lite"].asked[0]["model"] == "lite"
        assert servers.models["int8"].asked[0]["model"] == "tiny"
        servers.order(pressure=95)
        assert (await servers.post(9000)).by == "lite", "pressure goes before length"

    run(tmp_path, work)
