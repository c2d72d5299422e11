"""Sending on with the real aiohttp to a real server: streams, loops, ends of either side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp.web
import pytest

from engine_hooks.frontend.admission.body import Body
from engine_hooks.frontend.admission.gate import Passage
from engine_hooks.frontend.admission.rules import Rules
from engine_hooks.frontend.admission.sending_on import send_on
from engine_hooks.frontend.admission.upstreams import Upstream
from engine_hooks.frontend.identify import Claims
from tests.bed.net import free_port

BODY = b'{"model": "tiny", "prompt": "hello"}'


class Other:
    """Another server. ``asked``: what it got; it streams three pieces, and waits for ``go`` after the first."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.gone = asyncio.Event()
        self.dies = False

    async def answer(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append((request.path_qs, headers, await request.read()))
        response = aiohttp.web.StreamResponse(status=202, headers={"X-Own": "1", "Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await response.write(b"data: 1\n\n")
            await self.go.wait()
            if self.dies and request.transport is not None:
                request.transport.abort()
            await response.write(b"data: 2\n\n")
            await response.write(b"data: [DONE]\n\n")
        except (ConnectionError, asyncio.CancelledError):
            self.gone.set()
            raise
        return response


class Client:
    """What our own client sees; it goes away when told to."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.leave = asyncio.Event()
        self.begun = asyncio.Event()  # the first piece has come

    async def receive(self) -> Any:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.messages.append(message)
        if len(self.messages) == 2:
            self.begun.set()

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])


def serve(work: Callable[[Other, Client, str], Awaitable[None]]) -> None:
    async def run() -> None:
        other, client = Other(), Client()
        app = aiohttp.web.Application()
        app.router.add_post("/base/v1/completions", other.answer)
        runner = aiohttp.web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        port = free_port()
        await aiohttp.web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            await asyncio.wait_for(work(other, client, f"http://127.0.0.1:{port}/base"), 30.0)
        finally:
            await runner.cleanup()

    asyncio.run(run())


def passage_of(client: Client, *headers: tuple[bytes, bytes]) -> Passage:
    own = [(b"host", b"here"), (b"content-length", b"999"), (b"connection", b"close"), (b"authorization", b"Bearer k")]
    scope = {"type": "http", "headers": [*own, *headers], "query_string": b"a=1"}
    return Passage(scope, "/v1/completions", Rules(), Body(client.receive), Claims(), read=BODY)


def test_an_answer_comes_back_piece_by_piece() -> None:
    async def work(other: Other, client: Client, url: str) -> None:
        other.go.clear()
        passage = passage_of(client, (b"x-request-id", b"mine"), (b"content-type", b"application/json"))
        task = asyncio.create_task(send_on(Upstream(name="far", url=url), passage, client.send))
        await client.begun.wait()
        assert client.body == b"data: 1\n\n"  # before the other server has gone on
        other.go.set()
        assert await task
        assert client.messages[0]["status"] == 202
        headers = dict(client.messages[0]["headers"])
        assert headers[b"x-kvtide-decision"] == b"sent on; upstream=far"
        assert headers[b"X-Own"] == b"1"
        assert not {name.lower() for name in headers} & {b"transfer-encoding", b"connection"}
        assert client.body == b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
        assert client.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        ((path, asked, body),) = other.asked
        assert (path, body) == ("/base/v1/completions?a=1", BODY)
        assert (asked["x-request-id"], asked["authorization"], asked["x-kvtide-via"]) == ("mine", "Bearer k", "1")
        assert asked["content-length"] == str(len(BODY))
        assert asked["host"] != "here"

    serve(work)


def test_a_smaller_model_may_have_another_name() -> None:
    async def work(other: Other, client: Client, url: str) -> None:
        assert await send_on(Upstream(name="lite", url=url, model='li"te'), passage_of(client), client.send)
        assert json.loads(other.asked[0][2]) == {"model": 'li"te', "prompt": "hello"}

    serve(work)


def test_a_client_that_goes_away_ends_the_request_there_too() -> None:
    async def work(other: Other, client: Client, url: str) -> None:
        other.go.clear()
        task = asyncio.create_task(send_on(Upstream(name="far", url=url), passage_of(client), client.send))
        await client.begun.wait()
        client.leave.set()
        assert await task
        await other.gone.wait()

    serve(work)


def test_a_server_that_is_not_there_leaves_the_request_to_us() -> None:
    async def work(_other: Other, client: Client, _url: str) -> None:
        nobody = Upstream(name="far", url=f"http://127.0.0.1:{free_port()}")
        assert not await send_on(nobody, passage_of(client), client.send)
        assert client.messages == []

    serve(work)


@pytest.mark.parametrize("dies", [True, False])
def test_a_server_that_dies_in_mid_answer_is_not_followed_by_another_answer(dies: bool) -> None:
    async def work(other: Other, client: Client, url: str) -> None:
        other.dies = dies
        assert await send_on(Upstream(name="far", url=url), passage_of(client), client.send)
        assert client.messages[-1].get("more_body") is dies  # an answer without its end is no whole answer

    serve(work)
