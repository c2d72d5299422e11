"""The agent's HTTP endpoints. All are read-only but for a reload, where the configuration lets it be and who asks is
known; a recording is given to this host, and to who is known.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from agent.state import AgentState
from agent.tide import Tides
from agent.web.state import KNOWN
from exporters.encodings import takes_gzip
from exporters.exposition import Exposition
from exporters.landing import page
from exporters.pages import Page
from exporters.readiness import Told, engine_routes
from exporters.text import CONTENT_TYPE

Snapshot = Callable[[], AgentState]
Record = Callable[[float], "Future[Path]"]  # seconds to a file that is removed when it was sent
Reload = Callable[[], Awaitable[str]]  # why the policy was not taken, empty where it was

MOST_MINUTES = 1440.0

_PAGE_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def build_app(
    snapshot: Snapshot,
    record: Record | None = None,
    reload: Reload | None = None,
    told: Told | None = None,
    *,
    tides: Tides | None = None,
) -> Starlette:
    """Return the ASGI app; ``snapshot`` gives the state as it is now, ``record`` a bundle of what was before.

    ``record`` is None where nothing is recorded, ``reload`` where the policy may not be loaded again from here;
    ``told`` says what a load balancer is to give an engine: without it no engine has pages of its own. ``tides``: the
    last half an hour of each engine.
    """
    scraped, in_detail = Page(snapshot, Exposition()), Page(snapshot, Exposition(detail=True))
    recording = asyncio.Lock()

    async def metrics(request: Request) -> Response:
        return await exposed(request, scraped)

    async def metrics_in_detail(request: Request) -> Response:
        return await exposed(request, in_detail)

    async def exposed(request: Request, page_of: Page) -> Response:
        compressed = takes_gzip(request.headers.getlist("accept-encoding"))
        body = await page_of.get(compressed=compressed)
        headers = {"Vary": "Accept-Encoding"} | ({"Content-Encoding": "gzip"} if compressed else {})
        return Response(body, media_type=CONTENT_TYPE, headers=headers)

    async def healthy(_request: Request) -> Response:
        return PlainTextResponse("healthy\n")

    async def ready(_request: Request) -> Response:
        state = snapshot()
        if state.ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {state.not_ready_reason}\n", status_code=503)

    as_json = _Once(msgspec.json.encode)
    as_page = _Once(lambda state: page(state, tides).encode())

    async def api_state(_request: Request) -> Response:
        return Response(as_json.of(snapshot()), media_type="application/json")

    async def landing(_request: Request) -> Response:
        return HTMLResponse(as_page.of(snapshot()), headers=_PAGE_HEADERS)

    async def api_tide(_request: Request) -> Response:
        moments = tides.all() if tides is not None else {}
        rows = {name: [each._asdict() for each in kept] for name, kept in moments.items()}
        return Response(msgspec.json.encode(rows), media_type="application/json")

    async def api_record(request: Request) -> Response:
        if not (_is_here(request) or request.scope.get(KNOWN)):
            return _refused(403, "only this host may ask for recordings, and who is known by http.web_config_file")
        minutes = _number(request.query_params.get("minutes", "30"))
        if minutes is None or not 0 < minutes <= MOST_MINUTES:
            return _refused(400, f"minutes must be a number above 0, {MOST_MINUTES:.0f} at most")
        if record is None:
            return _refused(503, "the recorder is switched off (recorder.enabled)")
        if recording.locked():
            return _refused(503, "another recording is being made; try again")
        async with recording:
            try:
                path = await asyncio.wrap_future(record(60.0 * minutes))
            except Exception as error:
                return _refused(503, str(error))
        return FileResponse(
            path, media_type="application/octet-stream", background=BackgroundTask(path.unlink, missing_ok=True)
        )

    async def reload_policy(request: Request) -> Response:
        if reload is None:
            return _refused(403, "not from here (http.reload): use SIGHUP or the control socket")
        if not request.scope.get(KNOWN):
            return _refused(403, "not for anybody: http.web_config_file must name users or ask for certificates")
        if "origin" in request.headers:
            return _refused(403, "not from a web page")
        why = await reload()
        return _refused(409, f"the policy stays as it was: {why}") if why else PlainTextResponse("reloaded\n")

    return Starlette(
        routes=[
            Route("/", landing),
            Route("/metrics", metrics),
            Route("/metrics/detail", metrics_in_detail),
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
            Route("/-/reload", reload_policy, methods=["POST"]),
            Route("/api/v1/state", api_state),
            Route("/api/v1/tide", api_tide),
            Route("/api/v1/record", api_record),
            *(engine_routes(told) if told is not None else ()),
        ]
    )


class _Once:
    """Makes bytes of a state once, however many ask for them."""

    def __init__(self, make: Callable[[AgentState], bytes]) -> None:
        self._make = make
        self._made: tuple[AgentState, bytes] | None = None

    def of(self, state: AgentState) -> bytes:
        """Return what ``state`` is made to."""
        if self._made is None or self._made[0] is not state:
            self._made = (state, self._make(state))
        return self._made[1]


def _is_here(request: Request) -> bool:
    """Return whether who asks is on this host. ``uid:N`` is the agent's own name for a peer on its control socket."""
    if "x-forwarded-for" in request.headers or "forwarded" in request.headers:
        return False  # a proxy is here, and whoever asks it is not
    try:
        if request.client is not None and request.client.host.startswith("uid:"):
            return True
        if request.client is None:
            return False
        address = ipaddress.ip_address(request.client.host)
        mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 peer of a socket that listens on both
        return (address if mapped is None else mapped).is_loopback
    except ValueError:
        return False


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=status)
