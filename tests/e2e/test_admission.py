"""Admission through a real ``vllm serve`` with two API servers, ordered by a link that the test holds itself."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent.config import LinkConfig
from agent.engines import EngineTable
from agent.link import LinkServer
from agent.state import MemberState
from engine_hooks.levers.orders import ActionOrder, ActionResult
from engine_hooks.names import short_hash
from tests.bed.engine import SLOW_STEPS, EngineServer

pytestmark = pytest.mark.timeout(1200)  # for the start of the server on a machine with much else to do

SERVERS = 2
WAIT_SECONDS = 120.0  # for what comes about by itself, on a machine with much else to do
BODY = {"model": "tiny", "prompt": [5, 6, 7, 8], "max_tokens": 4, "temperature": 0.0, "ignore_eos": True}
LONG = {**BODY, "prompt": list(range(3, 99)), "max_tokens": 1500, "stream": True}  # 50 blocks of 32 tokens
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "temperature": 0.0, "ignore_eos": True}
KEY = "secret-of-one"
OWN = f"key-{short_hash(KEY)}"
DECISION = "x-kvtide-decision"


class Link:
    """The agent's end of the link, in a thread of the test."""

    def __init__(self, socket: Path) -> None:
        self._config = LinkConfig(socket=socket)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.heard: list[ActionResult] = []
        self.open()

    def open(self) -> None:
        self.table = EngineTable(3.0)
        self._server = LinkServer(self._config, self.table, heard=lambda _instance, result: self.heard.append(result))
        self._in_loop(self._server.start)

    def kill(self) -> None:
        """What the end of the agent's process is to the engine."""
        self._in_loop(self._server.close)

    def close(self) -> None:
        self.kill()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def servers(self) -> list[MemberState]:
        engines = self._in_loop(lambda: self.table.states(time.monotonic(), time.time()))
        return [m for engine in engines for m in engine.members if m.role == "frontend" and m.up]

    def all_servers(self) -> list[MemberState]:
        found = self.servers()
        return found if len(found) == SERVERS else []

    def core(self) -> str:
        (engine,) = self._in_loop(lambda: self.table.states(time.monotonic(), time.time()))
        assert {row.lever: row.ok for row in engine.levers}["enforce_admission"]
        return str(engine.instance)

    def order(
        self, op: Any, arguments: Any, lease: float = 600.0, action: str = "", core: str = ""
    ) -> list[ActionResult]:
        """Order the same of all API servers, or enforcing of the ``core``; return what they said."""
        action = action or uuid.uuid4().hex
        begun = len(self.heard)
        targets = [core] if core else [member.instance for member in wait_for(self.all_servers)]
        orders = [
            ActionOrder(
                action=action,
                lever="enforce_admission" if core else "admission",
                op=op,
                instance=target,
                lease_seconds=lease,
                valid_seconds=WAIT_SECONDS,
                arguments=arguments,
            )
            for target in targets
        ]
        for order in orders:
            assert self._in_loop(lambda order=order: self._server.act(order))
        return list(wait_for(lambda: len(self.heard) >= begun + len(targets) and self.heard[begun:]))

    def _in_loop(self, work: Any) -> Any:
        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60.0)


class Rules:
    """Rules in force for as long as the ``with`` lasts."""

    def __init__(self, link: Link, **arguments: Any) -> None:
        self.link = link
        self.arguments = arguments
        self.action = uuid.uuid4().hex

    def __enter__(self) -> Rules:
        results = self.link.order("apply", self.arguments, action=self.action)
        assert [(result.code, result.in_force) for result in results] == [("done", True)] * SERVERS, results
        return self

    def __exit__(self, *_error: object) -> None:
        self.ended = self.link.order("undo", {}, action=self.action)
        assert [result.code for result in self.ended] == ["undone"] * SERVERS


class Rig:
    """The server, its link, and a client that opens a connection for each request: any server may get it."""

    def __init__(self, engine: EngineServer, link: Link) -> None:
        self.engine = engine
        self.link = link
        limits = httpx2.Limits(max_keepalive_connections=0)
        self.client = httpx2.Client(base_url=engine.url, trust_env=False, timeout=600.0, limits=limits)

    def post(self, body: Any, path: str = "/v1/completions", **headers: str) -> httpx2.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, json=body, headers={"Authorization": f"Bearer {KEY}", **sent})

    def stream(self, stack: ExitStack, body: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {KEY}"}
        return stack.enter_context(self.client.stream("POST", "/v1/completions", json=body, headers=headers))


def wait_for(what: Any, timeout: float = WAIT_SECONDS) -> Any:
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError


@pytest.fixture(scope="module")
def rig(folder: Path) -> Iterator[Rig]:
    socket = folder / "admission" / "agent.sock"
    link = Link(socket)
    env = {"KVTIDE_SOCKET": str(socket), "KVTIDE_LEVERS": "admission,enforce_admission", **SLOW_STEPS}
    args = ["--api-server-count", str(SERVERS), "--api-key", KEY]
    try:
        with EngineServer(folder / "admission.log", num_blocks=300, args=args, env=env) as engine:
            engine.wait_ready(900.0)
            # The application of the second may come up later than its process.
            wait_for(lambda: {each.code for each in link.order("try", {"default_quota": 10})} == {"would"})
            yield Rig(engine, link)
    finally:
        link.close()


def test_both_servers_offer_the_lever_and_say_what_they_would_do(rig: Rig) -> None:
    for member in rig.link.servers():
        assert [(row.lever, row.ok) for row in member.levers] == [("admission", True)]
    results = rig.link.order("try", {"default_quota": 10})
    assert {result.code for result in results} == {"would"}
    assert {result.effect["capacity_blocks"] for result in results} == {299}
    assert DECISION not in rig.post(BODY).headers
    results = rig.link.order("apply", {"quota": 10})
    assert {(result.code, result.in_force) for result in results} == {("bad_argument", False)}


def test_a_quota_holds_in_total_over_both_servers(rig: Rig) -> None:
    with Rules(rig.link, quotas={OWN: 150}) as rules:
        both: set[int] = set()
        for _ in range(10):
            with ExitStack() as stack, ThreadPoolExecutor(12) as pool:
                answers = list(pool.map(lambda _: rig.stream(stack, LONG), range(12)))
                assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 9
                for answer in answers:
                    if answer.status_code == 429:
                        answer.read()
                        assert_refused(answer, "quota")
                        assert OWN in answer.text
                        assert "150 of 150 KV blocks" in answer.text
            # The streams are cut: what they held is free again, all of it.
            wait_for(lambda: rig.post({**BODY, "n": 140, "temperature": 1.0}).status_code == 200)
            both |= {m.rank for m in rig.link.servers() if m.frontend is not None and m.frontend.refused}
            if len(both) == SERVERS:
                break
        assert len(both) == SERVERS, "the kernel gave one server all connections"
    assert sum(result.effect["refused"] for result in rules.ended) >= 9
    rows = wait_for(lambda: all(m.frontend and m.frontend.refused for m in rig.link.servers()) and rig.link.servers())
    assert {row.tenant for m in rows for row in m.frontend.refused} == {OWN}


def test_what_ran_before_the_first_rules_counts_under_them(rig: Rig) -> None:
    with ExitStack() as stack:
        assert [rig.stream(stack, LONG).status_code for _ in range(3)] == [200] * 3
        with Rules(rig.link, quotas={OWN: 150}):
            refused = rig.post(BODY)
            assert refused.headers[DECISION] == "refused; reason=quota"
            assert_refused(refused, "quota")
            assert "150 of 150 KV blocks" in refused.text
            stack.close()
            wait_for(lambda: rig.post(BODY).status_code == 200)


def assert_refused(answer: httpx2.Response, reason: str) -> None:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == f"kvtide_{reason}"
    assert answer.headers[DECISION] == f"refused; reason={reason}"
    assert answer.status_code == 400 or int(answer.headers["retry-after"]) > 0


def test_what_is_let_in_is_served_as_ever(rig: Rig) -> None:
    plain = [rig.post(BODY, X_Request_Id="mine-1"), rig.post({**CHAT, "max_tokens": 4}, "/v1/chat/completions")]
    streamed = rig.post({**BODY, "stream": True}).text
    with Rules(rig.link, default_quota=250, pool_share=0.9, max_tokens=64, rate=1000):
        ruled = [rig.post(BODY, X_Request_Id="mine-1"), rig.post({**CHAT, "max_tokens": 4}, "/v1/chat/completions")]
        again = rig.post({**BODY, "stream": True}).text
    assert ruled[0].json()["id"].endswith("-mine-1")
    for before, under in zip(plain, ruled, strict=True):
        assert under.status_code == 200
        assert under.headers[DECISION] == "admitted"
        assert under.json()["choices"] == before.json()["choices"]
        assert under.json()["usage"] == before.json()["usage"]
    assert text_of(again) == text_of(streamed)
    assert again.rstrip().endswith("data: [DONE]")


def text_of(stream: str) -> str:
    """What was streamed. In how many pieces is vLLM's affair: what its server can't send at once it sends together."""
    lines = [line[6:] for line in stream.splitlines() if line.startswith("data: {")]
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


def test_all_is_shed_with_the_words_that_operators_look_for(rig: Rig) -> None:
    with Rules(rig.link, shed=True, retry_after=7):
        answer = rig.post(BODY)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
        assert "memory limit" in answer.json()["error"]["message"]
        assert_refused(answer, "shed")
        assert rig.post({**CHAT}, "/v1/chat/completions").status_code == 503
        assert rig.client.get("/health").status_code == 200
        stranger = rig.client.post("/v1/completions", json=BODY)
        assert stranger.status_code == 401  # vLLM's own authentication comes first
    assert rig.post(BODY).status_code == 200


def test_sizes_are_bounded(rig: Rig) -> None:
    with Rules(rig.link, prompt_limit=50, max_tokens=8):
        refused = rig.post({**BODY, "prompt": [5] * 51})
        assert_refused(refused, "prompt_limit")
        assert "exceeds limit" in refused.text
        bounded = rig.post(CHAT, "/v1/chat/completions")
        assert (bounded.status_code, bounded.json()["usage"]["completion_tokens"]) == (200, 8)
        assert bounded.headers[DECISION] == "admitted; max_tokens=8"
        assert rig.post({**BODY, "max_tokens": 20}).json()["usage"]["completion_tokens"] == 20


def test_prompts_are_measured_whether_rules_are_in_force_or_not(rig: Rig) -> None:
    hidden = "".join(chr(0xE0041 + n % 20) for n in range(100)) + "look at this " * 20
    for _ in range(4 * SERVERS):
        assert rig.post({**BODY, "prompt": hidden}).status_code == 200
        time.sleep(0.12)
    rows = wait_for(
        lambda: [row for m in rig.link.servers() if m.frontend for row in m.frontend.hygiene if row.invisible_ratio > 0]
    )
    assert {row.tenant for row in rows} == {OWN}
    assert all(row.requests > 0 and 0 < row.repeated_ratio < 1 for row in rows)  # with the plain prompts before


def test_the_core_refuses_where_a_front_end_can_not(rig: Rig) -> None:
    core = rig.link.core()
    (applied,) = rig.link.order("apply", {"default_quota": 1}, action="core", core=core)
    assert (applied.code, applied.in_force) == ("done", True)
    assert rig.post({**BODY, "max_tokens": 40}).status_code == 500  # two blocks: what vLLM makes of its error
    assert rig.post(BODY).status_code == 200
    (ended,) = rig.link.order("undo", {}, action="core", core=core)
    assert (ended.code, ended.effect) == ("undone", {"refused": 1})
    assert rig.post({**BODY, "max_tokens": 40}).status_code == 200


def test_rules_end_with_their_lease_when_the_agent_is_killed(rig: Rig) -> None:
    lease = 6.0
    ordered = time.monotonic()
    assert {result.code for result in rig.link.order("apply", {"shed": True}, lease)} == {"done"}
    rig.link.kill()
    seen = [rig.post(BODY).status_code for _ in range(4)]
    if time.monotonic() - ordered < lease:  # else this machine was too busy to tell
        assert seen == [503] * 4
    wait_for(lambda: all(rig.post(BODY).status_code == 200 for _ in range(6)))
    assert time.monotonic() - ordered > lease
    rig.link.open()
    wait_for(rig.link.all_servers)
    assert all(member.in_force == () for member in rig.link.servers())
    with Rules(rig.link, shed=True):
        assert rig.post(BODY).status_code == 503


def test_no_hook_has_raised_and_nothing_is_left_in_memory(rig: Rig) -> None:
    said = rig.engine.log.read_text(errors="replace")
    assert "kvtide: hook" not in said
    assert "Traceback" not in said
