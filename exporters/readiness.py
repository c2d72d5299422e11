"""Whether one engine is to get requests, over HTTP: for readiness probes and for Envoy's health checks."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from agent.balancer.state import Weight

Told = Callable[[str], Weight | None]
DEGRADED = "x-envoy-degraded"


def engine_routes(told: Told) -> list[Route]:
    """Return the routes. ``told``: what a load balancer is to give an engine now, None where it is not known."""

    async def ready(request: Request) -> Response:
        return _answer(told, request.path_params["engine"])

    async def health(request: Request) -> Response:
        return _answer(told, request.path_params["engine"], degraded=True)

    # A label may have slashes in it, as models' names do.
    return [
        Route("/-/engines/{engine:path}/ready", ready),
        Route("/-/engines/{engine:path}/health", health),
    ]


def _answer(told: Told, engine: str, *, degraded: bool = False) -> Response:
    weight = told(engine)
    if weight is None:
        return PlainTextResponse("no such engine\n", status_code=404)
    why = f": {weight.why}" if weight.why else ""
    if not weight.serves:
        return PlainTextResponse(f"not ready: {weight.step}{why}\n", status_code=503)
    # Envoy gives a degraded host only what healthy ones can't take.
    headers = {DEGRADED: "true"} if degraded and weight.percent < 100 else None
    return PlainTextResponse(f"ready: {weight.percent} %{why}\n", headers=headers)
