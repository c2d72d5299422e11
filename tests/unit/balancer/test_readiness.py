"""Whether one engine is ready, over HTTP."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from agent.balancer.state import Weight
from exporters.readiness import DEGRADED, engine_routes

WEIGHTS = {
    "m": Weight(since=0.0),
    "org/half": Weight(percent=50, since=0.0, why="it leaks", step="halved"),
    "out": Weight(percent=0, mode="drain", since=0.0, why="it leaks", step="isolated"),
    "held": Weight(percent=0, mode="maint", since=0.0, why="a person holds it: maint", step="person"),
}


@pytest.mark.parametrize(
    ("engine", "status", "text", "degraded"),
    [
        ("m", 200, "ready: 100 %\n", None),
        ("org/half", 200, "ready: 50 %: it leaks\n", "true"),
        ("out", 503, "not ready: isolated: it leaks\n", None),
        ("held", 503, "not ready: person: a person holds it: maint\n", None),
        ("none", 404, "no such engine\n", None),
    ],
)
def test_ready_and_health(engine: str, status: int, text: str, degraded: str | None) -> None:
    app = TestClient(Starlette(routes=engine_routes(WEIGHTS.get)))
    for path in ("ready", "health"):
        answer = app.get(f"/-/engines/{engine}/{path}")
        assert (answer.status_code, answer.text) == (status, text)
        assert answer.headers.get(DEGRADED) == (degraded if path == "health" else None)
