"""The agent's HTTP endpoints. All are read-only."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from agent.state import AgentState
from exporters.exposition import Exposition
from exporters.landing import page
from exporters.text import CONTENT_TYPE

Snapshot = Callable[[], AgentState]

_PAGE_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def build_app(snapshot: Snapshot) -> Starlette:
    """Return the ASGI app; ``snapshot`` gives the state as it is now."""
    exposition = Exposition()

    async def metrics(request: Request) -> Response:
        compressed = bool(
            re.search(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", request.headers.get("accept-encoding", ""))
        )
        body = exposition.render(snapshot(), compressed=compressed)
        headers = {"Vary": "Accept-Encoding"} | ({"Content-Encoding": "gzip"} if compressed else {})
        return Response(body, media_type=CONTENT_TYPE, headers=headers)

    async def healthy(_request: Request) -> Response:
        return PlainTextResponse("healthy\n")

    async def ready(_request: Request) -> Response:
        state = snapshot()
        if state.ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {state.not_ready_reason}\n", status_code=503)

    async def api_state(_request: Request) -> Response:
        return Response(msgspec.json.encode(snapshot()), media_type="application/json")

    async def landing(_request: Request) -> Response:
        return HTMLResponse(page(snapshot()), headers=_PAGE_HEADERS)

    return Starlette(
        routes=[
            Route("/", landing),
            Route("/metrics", metrics),
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
            Route("/api/v1/state", api_state),
        ]
    )
