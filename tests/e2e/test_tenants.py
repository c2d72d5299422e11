"""Tenants through a real server: who is believed, what the client sees, and that a cut stream is its tenant's."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from engine_hooks.names import short_hash
from tests.bed.agent import AgentProcess
from tests.bed.engine import SLOW_STEPS, EngineServer

KEY, GOLD_KEY = "secret-of-one", "secret-of-gold"
TRUSTED = "10.9.0.7"  # an address among the trusted proxies that nobody here has
BODY = {"model": "tiny", "prompt": [5, 6, 7, 8, 9, 10, 11, 12], "max_tokens": 4, "temperature": 0.0, "ignore_eos": True}
CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 4,
    "temperature": 0.0,
    "ignore_eos": True,
}
PATHS = {"/v1/completions": BODY, "/v1/chat/completions": CHAT}
UNGUARDED = "/invocations"  # a route of vLLM's that its authentication does not cover


class Rig:
    """One server with two API keys, a map, and its agent."""

    def __init__(self, agent: AgentProcess, engine: EngineServer) -> None:
        self.agent = agent
        self.engine = engine
        self.client = httpx2.Client(base_url=engine.url, trust_env=False, timeout=600.0)

    def post(self, path: str, body: dict[str, Any], *, key: str = KEY, **headers: str) -> httpx2.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            sent["Authorization"] = f"Bearer {key}"
        return self.client.post(path, json=body, headers=sent)

    def tenants(self) -> dict[str, dict[str, Any]]:
        detail = self.agent.engine().get("detail") or {}
        return {row["tenant"]: row for row in detail.get("tenants") or ()}

    def row(self, tenant: str, **wanted: int) -> dict[str, Any]:
        """Wait until a tenant's row says so; return it."""
        found: dict[str, Any] = {}

        def said() -> bool:
            found.clear()
            found.update(self.tenants().get(tenant, {}))
            return wanted.items() <= found.items()

        self.agent.wait(said)
        return found

    def requests(self) -> dict[str, int]:
        """Requests so far, as the engine tells them after this moment; both clocks are the machine's monotonic one."""
        now = time.monotonic()
        self.agent.wait(lambda: (self.agent.engine().get("detail") or {}).get("monotonic", 0.0) > now)
        return {name: row["requests_total"] for name, row in self.tenants().items()}

    def expect(self, before: dict[str, int], **added: int) -> None:
        """Exactly these requests have been counted since; any other tenant's is an error."""
        wanted = dict(before)
        for name, count in added.items():
            wanted[name] = wanted.get(name, 0) + count
        assert self.requests() == wanted


OWN = f"key-{short_hash(KEY)}"


@pytest.fixture(scope="module")
def rig(folder: Path) -> Iterator[Rig]:
    mapped = folder / "tenants.json"
    mapped.write_text(json.dumps({"gold": {"values": [f"api_key:{short_hash(GOLD_KEY)}"], "quota_blocks": 100}}))
    agent = AgentProcess(folder / "tenants")
    env = {
        **agent.engine_env(),
        "KVTIDE_TENANT_FROM": "header:X-Tenant,user,api_key",
        "KVTIDE_TRUSTED_PROXIES": "10.9.0.0/16",
        "KVTIDE_TENANT_MAP": str(mapped),
        **SLOW_STEPS,
    }
    with EngineServer(folder / "tenants.log", num_blocks=300, args=["--api-key", KEY, GOLD_KEY], env=env) as engine:
        try:
            engine.wait_ready()
            agent.wait_live()
            yield Rig(agent, engine)
        finally:
            agent.stop()


@pytest.mark.parametrize("path", PATHS)
def test_header_user_and_key_name_the_tenant(rig: Rig, path: str) -> None:
    before = rig.requests()
    body = PATHS[path]
    for response in (
        rig.post(path, {**body, "user": "bob"}, X_Tenant="acme"),
        rig.post(path, {**body, "user": "bob"}),
        rig.post(path, body),
        rig.post(path, body, key=GOLD_KEY),
    ):
        assert response.status_code == 200, response.text
    rig.expect(before, acme=1, bob=1, gold=1, **{OWN: 1})
    assert rig.tenants()["gold"]["quota_blocks"] == 100
    assert rig.tenants()["acme"]["quota_blocks"] is None


@pytest.mark.parametrize("path", PATHS)
def test_the_client_sees_its_own_id_and_the_same_answer(rig: Rig, path: str) -> None:
    plain = rig.post(path, PATHS[path], X_Request_Id="mine-1").json()
    marked = rig.post(path, {**PATHS[path], "user": "bob"}, X_Request_Id="mine-2", X_Tenant="acme", X_Session_ID="talk")
    seen = marked.json()
    assert plain["id"].endswith("-mine-1")
    assert seen["id"] == plain["id"].replace("mine-1", "mine-2")
    varying = ("id", "created")
    assert {k: v for k, v in seen.items() if k not in varying} == {k: v for k, v in plain.items() if k not in varying}
    assert "kvtide" not in marked.text
    assert not [name for name in marked.headers if "kvtide" in name.lower()]


def test_n_choices_are_one_clients(rig: Rig) -> None:
    before = rig.requests()
    assert rig.post("/v1/completions", {**BODY, "n": 3, "temperature": 1.0}, X_Tenant="acme").status_code == 200
    rig.expect(before, acme=3)


def test_who_is_not_let_in_is_nobody(rig: Rig) -> None:
    before = rig.requests()
    assert rig.post("/v1/completions", BODY, key="guess", X_Tenant="acme").status_code == 401
    assert rig.post("/v1/completions", BODY, X_Tenant="acme").status_code == 200
    rig.expect(before, acme=1)


@pytest.mark.parametrize("forged", [{}, {"X_Forwarded_For": TRUSTED}, {"key": "guess"}])
def test_marks_of_strangers_are_not_believed(rig: Rig, forged: dict[str, str]) -> None:
    """vLLM serves this route without a key; a proxy's address is only a header here."""
    before = rig.requests()
    sent = {"key": "", **forged}
    response = rig.post(UNGUARDED, {**BODY, "user": "bob"}, X_Tenant="acme", **sent)
    assert response.status_code == 200, response.text
    rig.expect(before, none=1)


def test_the_same_route_with_a_key_is_believed(rig: Rig) -> None:
    before = rig.requests()
    assert rig.post(UNGUARDED, BODY, X_Tenant="acme").status_code == 200
    rig.expect(before, acme=1)


@pytest.mark.parametrize("forged", ["acme", ["tenant", "acme"]])
def test_marks_in_the_body_are_not_believed(rig: Rig, forged: object) -> None:
    before = rig.requests()
    body = {**BODY, "vllm_xargs": {"kvtide": forged, "other": 1}}
    assert rig.post("/v1/completions", body).status_code == 200
    rig.expect(before, **{OWN: 1})


@pytest.mark.parametrize("path", PATHS)
def test_a_cut_stream_is_its_tenants(rig: Rig, path: str) -> None:
    tenant = f"cut{len(path)}"
    body = {**PATHS[path], "max_tokens": 2000, "stream": True}
    headers = {"Authorization": f"Bearer {KEY}", "X-Tenant": tenant, "X-Session-ID": "talk"}
    with rig.client.stream("POST", path, json=body, headers=headers) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        assert any(line.startswith("data: ") for line in lines)
        row = rig.row(tenant, running=1)
        assert row["held"] > 0
        assert (row["sessions"], row["ended_total"]) == (1, {})
    row = rig.row(tenant, running=0)
    assert row["ended_total"] == {"aborted_front_end": 1}
    assert (row["held"], row["references"], row["waiting"]) == (0.0, 0, 0)
    assert row["generated_tokens_total"] > 0


def test_a_stream_that_is_read_to_its_end_is_no_abort(rig: Rig) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "X-Tenant": "whole"}
    with rig.client.stream("POST", "/v1/completions", json={**BODY, "stream": True}, headers=headers) as response:
        assert "data: [DONE]" in list(response.iter_lines())
    rig.agent.wait(lambda: sum(rig.tenants().get("whole", {}).get("ended_total", {}).values()) == 1)
    assert rig.tenants()["whole"]["ended_total"] == {"finished": 1}


def test_a_request_that_is_cut_while_it_waits_is_its_tenants(rig: Rig) -> None:
    """Twenty-four long prompts fill the pool; the last of them is cut before it gets a block."""
    headers = {"Authorization": f"Bearer {KEY}"}
    long = {**BODY, "prompt": list(range(3, 500)) * 3, "max_tokens": 500, "stream": True}
    with ExitStack() as running:
        for number in range(24):
            body = {**long, "prompt": [number + 3, *long["prompt"]]}
            sent = {**headers, "X-Tenant": "crowd"}
            running.enter_context(rig.client.stream("POST", "/v1/completions", json=body, headers=sent))
        sent = {**headers, "X-Tenant": "late"}
        with rig.client.stream("POST", "/v1/completions", json=long, headers=sent):
            rig.agent.wait(lambda: rig.tenants().get("late", {}).get("waiting") == 1)
        rig.agent.wait(lambda: rig.tenants().get("late", {}).get("ended_total") == {"aborted_front_end": 1})
        row = rig.tenants()["late"]
    assert (row["running"], row["waiting"], row["requests_total"], row["generated_tokens_total"]) == (0, 0, 1, 0)
    rig.agent.wait(lambda: rig.tenants()["crowd"]["running"] + rig.tenants()["crowd"]["waiting"] == 0)


def test_two_turns_of_a_session_are_one_session(rig: Rig) -> None:
    for _ in range(2):
        assert rig.post("/v1/completions", BODY, X_Tenant="talker", X_Session_ID="talk").status_code == 200
    assert rig.requests()["talker"] == 2
    row = rig.tenants()["talker"]
    assert row["sessions"] == 1
    assert sum(row["session_idle_seconds"]["counts"]) == 1


def test_no_hook_has_raised_and_keys_are_nowhere(rig: Rig) -> None:
    assert rig.agent.engine()["hooks"]["errors"] == {}
    said = rig.engine.log.read_text(errors="replace")
    assert "kvtide: hook" not in said
    assert KEY not in rig.agent.get("/api/v1/state") + rig.agent.get("/metrics")
