"""Sends a request on to another server and its answer back, piece by piece. Uses aiohttp, which vLLM installs."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
from typing import Any

from engine_hooks.frontend.admission.answers import DECISION
from engine_hooks.frontend.admission.body import with_value
from engine_hooks.frontend.admission.gate import Passage
from engine_hooks.frontend.admission.upstreams import VIA, Upstream
from engine_hooks.frontend.middleware import Receive, Send

CONNECT_SECONDS = 2.0
# Of the connection, not of the request; the length and the host are another's.
_OWN = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}
)


async def send_on(upstream: Upstream, passage: Passage, send: Send) -> bool:
    """Have ``upstream`` answer; return whether it did, or the client has gone. False: nothing was sent yet."""
    answer = asyncio.create_task(_answer(upstream, passage, send))
    gone = asyncio.create_task(_gone(passage.body.rest))  # after the body comes nothing but the client's end
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else True
    finally:
        for task in (answer, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(upstream: Upstream, passage: Passage, send: Send) -> bool:
    aiohttp = importlib.import_module("aiohttp")
    scope, body = passage.scope, passage.read
    if upstream.model is not None:
        body = with_value(body, "model", json.dumps(upstream.model))
    begun = False
    url = (upstream.url or "").rstrip("/") + passage.path
    if scope.get("query_string"):
        url += "?" + scope["query_string"].decode("latin-1")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    headers = [(name, value) for name, value in headers if name not in _OWN]
    session = aiohttp.ClientSession(
        auto_decompress=False,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
    )
    async with session:
        try:
            request: Any = session.post(
                url,
                data=body,
                headers=[*headers, (VIA.decode(), "1")],
                allow_redirects=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            )
            async with request as response:
                back = [(n, v) for n, v in response.raw_headers if n.lower().decode("latin-1") not in _OWN]
                back.append((DECISION, f"sent on; upstream={upstream.name}".encode()))
                begun = True
                await send({"type": "http.response.start", "status": response.status, "headers": back})
                async for piece in response.content.iter_any():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (aiohttp.ClientError, OSError, TimeoutError):
            return begun  # the client sees the answer end too soon; or gets one from here
    return True
