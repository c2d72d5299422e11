"""The agent's HTTP endpoints, in the same process."""

from __future__ import annotations

import gzip

import msgspec
import pytest
from starlette.testclient import TestClient

from agent.state import AgentState
from exporters.exposition import Exposition
from exporters.http import build_app
from tests.unit.builders import make_engine, make_pool, make_silent, make_state, make_verdict
from tests.unit.details import make_detail, make_leak, make_tenant
from tests.unit.judgements import make_judgement

ROUTES = ("/", "/metrics", "/-/healthy", "/-/ready", "/api/v1/state")
HOSTILE = "<script>alert(1)</script>\"'&"


def client(state: AgentState | None = None) -> TestClient:
    state = state or make_state()
    return TestClient(build_app(lambda: state))


def test_metrics_plain() -> None:
    state = make_state()
    response = client(state).get("/metrics", headers={"Accept-Encoding": "identity"})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert response.headers["content-type"].count("charset=utf-8") == 1
    assert response.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in response.headers
    assert response.content == Exposition().render(state, compressed=False)


def test_metrics_compressed() -> None:
    state = make_state()
    with client(state).stream("GET", "/metrics", headers={"Accept-Encoding": "gzip"}) as response:
        raw = b"".join(response.iter_raw())
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["content-length"] == str(len(raw))
    assert gzip.decompress(raw) == Exposition().render(state, compressed=False)


def test_metrics_follow_the_state() -> None:
    states = [make_state(make_engine(running=1)), make_state(make_engine(running=2))]
    app = TestClient(build_app(lambda: states[0]))
    assert 'kvtide_requests_running{engine="m"} 1.0' in app.get("/metrics").text
    states.pop(0)
    assert 'kvtide_requests_running{engine="m"} 2.0' in app.get("/metrics").text


def test_ready_and_healthy() -> None:
    app = client()
    assert (app.get("/-/ready").status_code, app.get("/-/ready").text) == (200, "ready\n")
    assert (app.get("/-/healthy").status_code, app.get("/-/healthy").text) == (200, "healthy\n")


def test_not_ready_gives_503_and_the_reason_but_is_healthy() -> None:
    app = client(make_state(ready=False, not_ready_reason="link.socket: gone"))
    response = app.get("/-/ready")
    assert (response.status_code, response.text) == (503, "not ready: link.socket: gone\n")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert app.get("/-/healthy").status_code == 200
    assert "Not ready: link.socket: gone" in app.get("/").text


def test_the_state_comes_back_whole() -> None:
    state = make_state()
    response = client(state).get("/api/v1/state")
    assert response.headers["content-type"] == "application/json"
    assert msgspec.json.decode(response.content, type=AgentState) == state


def test_the_page_has_every_number_and_no_script() -> None:
    response = client().get("/")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    text = response.text
    for part in (
        "300 (300.0 MiB)",
        "4 (4.0 MiB)",
        "200 (200.0 MiB)",
        "500 (500.0 MiB)",
        "1,000 (1000.0 MiB)",
        "<dt>running</dt><dd>8</dd>",
        "<dt>waiting</dt><dd>3</dd>",
        "<strong>page: kv_orphan m</strong> confirmed since",
        make_verdict().sentence,
        make_verdict().remedy,
        '<dt>leaked</dt><dd class="bad">4 blocks: tenant acme, request 3fa2b1c4d5e6, aborted at the front end 14 s',
        "<dt>kept</dt><dd>40 blocks of 3 requests for 10.0.0.7:5600 (send), oldest 42 s of a lease of 8 min",
        "<th scope=row>acme</th><td>180 of 400</td><td>5</td><td>2</td>",
        f"No values: {make_silent().reason}.",
    ):
        assert part in text
    assert "<script" not in text


def test_the_page_says_what_is_not_known() -> None:
    pool = make_pool(cached_idle=None, empty=None, orphaned=None, block_bytes=None)
    text = client(make_state(make_engine(pool=pool, audit_supported=False, audit_reason="too new"))).get("/").text
    assert text.count("not known") == 4
    assert "No exact accounting: too new." in text
    assert "1,000</dd>" in text
    text = client(make_state(make_engine(pool=None))).get("/").text
    assert "This engine has no KV pool." in text


def test_the_page_without_engines_says_what_to_do() -> None:
    state = msgspec.structs.replace(make_state(), engines=(), scrape=None)
    text = client(state).get("/").text
    assert "Start vLLM with kvtide installed beside it: it appears here by itself." in text
    elsewhere = msgspec.structs.replace(state, link=msgspec.structs.replace(state.link, socket="/x/a.sock"))
    assert "KVTIDE_SOCKET=/x/a.sock" in client(elsewhere).get("/").text


def test_the_page_without_engines_says_who_was_turned_away() -> None:
    state = msgspec.structs.replace(make_state(), engines=())
    refused = msgspec.structs.replace(state.link, refused_peers={"uid": 3, "key": 0})
    text = client(msgspec.structs.replace(state, link=refused)).get("/").text
    assert "refused since the agent started: 3 because the user is not admitted (link.group" in text
    quiet = msgspec.structs.replace(state.link, refused_peers={"uid": 0})
    assert "refused" not in client(msgspec.structs.replace(state, link=quiet)).get("/").text


def test_the_page_of_an_engine_that_tells_no_detail_has_none() -> None:
    text = client(make_state(make_engine(detail=None))).get("/").text
    assert ">tenant</th>" not in text
    assert "<dt>leaked</dt>" not in text


@pytest.mark.parametrize(
    "change", [{"leaks": (make_leak(tenant=HOSTILE),)}, {"tenants": (make_tenant(tenant=HOSTILE),)}]
)
def test_hostile_names_in_a_detail_are_escaped(change: dict[str, object]) -> None:
    text = client(make_state(make_engine(detail=make_detail(**change)))).get("/").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;" in text
    assert "<script" not in text


@pytest.mark.parametrize("field", ["engine", "engine_version", "audit_reason", "silent", "kind", "sentence", "remedy"])
def test_hostile_text_is_escaped(field: str) -> None:
    verdict = make_verdict()
    if field == "silent":
        engine = make_silent(reason=HOSTILE)
    elif field in {"kind", "sentence", "remedy"}:
        verdict = make_verdict(**{field: HOSTILE})
        engine = make_engine(verdicts=(verdict,))
    else:
        engine = make_engine(audit_supported=False, **{field: HOSTILE})
    text = client(make_state(engine, judgement=make_judgement(verdict))).get("/").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;" in text
    assert "<script" not in text


@pytest.mark.parametrize("path", [*ROUTES, "/api/v1/record"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(path: str, method: str) -> None:
    assert client().request(method, path).status_code == 405


@pytest.mark.parametrize("path", ROUTES)
def test_head_is_answered_without_a_body(path: str) -> None:
    response = client().head(path)
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize("path", ["/nope", "/metrics/x", "/api/v1", "/-/", "/..%2fetc/passwd"])
def test_unknown_paths(path: str) -> None:
    assert client().get(path).status_code == 404
