"""The middleware over a small ASGI application: what clients see, what is given back, and that it fails open."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from engine_hooks.frontend.admission import body as bodies
from engine_hooks.frontend.admission.gate import Gate
from engine_hooks.frontend.admission.middleware import HOOK
from engine_hooks.frontend.admission.table import Table
from engine_hooks.guard import ERROR_LIMIT
from engine_hooks.levers.base import RefusedError
from tests.unit.admission.asking import CHAT, COMPLETIONS, Answer, Bed, completion, run

DECISION = "x-kvtide-decision"


def test_without_rules_no_body_is_read_and_nothing_is_touched() -> None:
    bed = Bed()
    bed.app.reads = False
    answer = run(lambda: bed.post(completion(10)))
    assert (answer.status, answer.headers, answer.polled) == (200, {"x-own": "1"}, 0)
    assert bed.gate.table is None


@pytest.mark.parametrize(("method", "path"), [("GET", COMPLETIONS), ("POST", "/tokenize"), ("POST", "/metrics")])
def test_other_requests_are_not_read_either(method: str, path: str) -> None:
    bed = Bed()
    bed.order(shed=True)
    bed.app.reads = False
    answer = run(lambda: bed.post(completion(10), path, method=method))
    assert (answer.status, answer.polled) == (200, 0)


def test_other_work_is_shed_too_and_otherwise_left_alone() -> None:
    bed = Bed()
    bed.app.reads = False
    done = bed.order(shed=True)
    assert run(lambda: bed.post({"input": "x"}, "/v1/embeddings")).status == 503
    assert done.undo is not None
    done.undo()
    bed.order(default_quota=0)
    answer = run(lambda: bed.post({"input": "x"}, "/v1/embeddings"))
    assert (answer.status, answer.polled) == (200, 0)


@pytest.mark.parametrize("pieces", [1, 7])
def test_the_application_gets_the_clients_bytes_and_the_client_its_answer(pieces: int) -> None:
    bed = Bed()
    bed.order(default_quota=50)
    sent = json.dumps(completion(10), indent=3).encode()
    answer = run(lambda: bed.post(sent, pieces=pieces))
    assert bed.app.bodies == [sent]
    assert dict(bed.app.scopes[0]["headers"])[b"content-length"] == str(len(sent)).encode()
    assert [message.get("body") for message in answer.messages] == [None, b"one", b"two"]
    assert answer.headers == {"x-own": "1", DECISION: "admitted"}
    assert answer.polled == pieces
    assert bed.held() == (0, 0, 0)


def test_a_quota_holds_while_requests_run_and_frees_when_they_end() -> None:
    bed = Bed()
    bed.order(quotas={"acme": 10}, retry_after=3)

    async def work() -> None:
        bed.app.hold = asyncio.Event()
        seen = [Answer(), Answer()]
        running = [asyncio.create_task(bed.post(completion(64), seen=one)) for one in seen]  # 5 blocks each
        await until(lambda: len(bed.app.bodies) == 2)
        assert bed.held() == (10, 2, 0)
        refused = await bed.post(completion(1, 1))
        assert (refused.status, refused.headers["retry-after"]) == (429, "3")
        assert refused.headers[DECISION] == "refused; reason=quota"
        assert refused.error == {
            "message": "Tenant acme is over its quota: 10 of 10 KV blocks are in use and this request needs about 1.",
            "type": "rate_limit_error",
            "param": None,
            "code": "kvtide_quota",
        }
        bed.app.hold.set()
        other = await bed.post(completion(64), tenant="umbrella")
        assert other.status == 200
        await asyncio.gather(*running)
        assert (await bed.post(completion(1, 1))).status == 200

    run(work)
    assert bed.held() == (0, 0, 0)
    assert [(row.tenant, row.reasons) for row in bed.gate.refused.rows()] == [("acme", {"quota": 1})]


@pytest.mark.parametrize("how", ["ends", "raises", "cancelled", "gone"])
def test_what_was_taken_is_given_back_once(how: str) -> None:
    bed = Bed()
    bed.order(in_flight=1, short_first=True)

    async def work() -> None:
        if how == "raises":
            bed.app.error = RuntimeError("the application's own")
            with pytest.raises(RuntimeError, match="own"):
                await bed.post(completion(10))
        elif how == "cancelled":
            bed.app.hold = asyncio.Event()
            task = asyncio.create_task(bed.post(completion(10)))
            await until(lambda: len(bed.app.bodies) == 1)
            assert bed.held()[1] == 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        elif how == "gone":
            assert (await bed.post(completion(10), pieces=4, gone_after=2)).messages == []
            assert bed.app.received == 3  # the application hears of it as it came
        else:
            await bed.post(completion(10))

    run(work)
    assert bed.held() == (0, 0, 0)
    assert (bed.gate._breaker.inside, bed.gate._short) == (0, 0)
    assert bed.guard.errors == {}  # what the application raises is not ours


def test_all_is_shed_before_a_body_is_read() -> None:
    bed = Bed()
    bed.order(shed=True, retry_after=30)
    answer = run(lambda: bed.post(completion(10)))
    assert (answer.status, answer.headers["retry-after"], answer.polled) == (503, "30", 0)
    assert "memory limit" in answer.error["message"]
    assert answer.error["type"] == "service_unavailable_error"
    assert bed.app.scopes == []


def test_the_fast_breaker_counts_requests_and_rate() -> None:
    bed = Bed()

    async def work() -> list[int]:
        statuses = [(await bed.post(completion(1, 1))).status for _ in range(4)]
        bed.clock.now += 0.5
        return [*statuses, *[(await bed.post(completion(1, 1))).status for _ in range(2)]]

    bed.order(rate=2, burst=3)
    assert run(work) == [200, 200, 200, 429, 200, 429]
    bed.lever._gate.rules = None
    bed.order(in_flight=1)

    async def two() -> int:
        bed.app.hold = asyncio.Event()
        task = asyncio.create_task(bed.post(completion(1, 1)))
        await until(lambda: bed.gate._breaker.inside == 1)
        refused = await bed.post(completion(1, 1))
        bed.app.hold.set()
        await task
        return refused.status

    assert run(two) == 503
    assert run(lambda: bed.post(completion(1, 1))).status == 200


@pytest.mark.parametrize(
    ("arguments", "body", "path", "status", "code"),
    [
        ({"prompt_limit": 50}, completion(51), COMPLETIONS, 400, "kvtide_prompt_limit"),
        ({"pool_share": 0.5}, completion(64, 800), COMPLETIONS, 400, "kvtide_pool_share"),
        ({"max_prompt": 50}, {"messages": [{"content": "x" * 400}]}, CHAT, 429, "kvtide_long_prompt"),
        ({"concurrency": {"acme": 2}}, {"prompt": ["a", "b", "c"]}, COMPLETIONS, 429, "kvtide_concurrency"),
        ({"concurrency": {"acme": 2}}, completion(1, n=3), COMPLETIONS, 429, "kvtide_concurrency"),
        ({"default_long_sessions": 0, "long_tokens": 9}, completion(10), COMPLETIONS, 429, "kvtide_long_sessions"),
        ({"reserved": {"gold": 99}}, completion(16), COMPLETIONS, 429, "kvtide_reserved"),
    ],
)
def test_refusals_by_size_and_use(arguments: Any, body: Any, path: str, status: int, code: str) -> None:
    bed = Bed()
    bed.order(**arguments)
    answer = run(lambda: bed.post(body, path))
    assert (answer.status, answer.error["code"]) == (status, code)
    if status == 400:
        assert "exceeds limit" in answer.error["message"]
        assert "retry-after" not in answer.headers
    assert run(lambda: bed.post(completion(1, 1))).status == 200


def test_a_body_that_is_too_long_is_refused_and_one_that_is_not_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    bed.order()
    sent = json.dumps(completion(10)).encode()
    monkeypatch.setattr(bodies.Body.read, "__defaults__", (len(sent),))
    assert run(lambda: bed.post(sent, pieces=3)).status == 200
    answer = run(lambda: bed.post(sent + b" ", pieces=3))
    assert (answer.status, answer.error["code"]) == (413, "kvtide_body_size")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_what_the_engine_will_refuse_reaches_it(body: bytes) -> None:
    bed = Bed()
    bed.order(default_quota=0)
    assert run(lambda: bed.post(body)).status == 200
    assert bed.app.bodies == [body]


def test_a_missing_length_is_bounded_and_the_rest_of_the_body_stays() -> None:
    bed = Bed()
    bed.order(max_tokens=64)
    sent = b'{"messages": [{"role": "user", "content": "h\xc3\xa9"}],\n "seed": 12345678901234567890123 }\n'
    answer = run(lambda: bed.post(sent, CHAT))
    (got,) = bed.app.bodies
    assert got == sent.rstrip()[:-1] + b',"max_tokens":64}'
    assert json.loads(got) == {**json.loads(sent), "max_tokens": 64}
    assert answer.headers[DECISION] == "admitted; max_tokens=64"
    assert dict(bed.app.scopes[0]["headers"])[b"content-length"] == str(len(got)).encode()
    given = json.dumps({"messages": [], "max_tokens": 900}).encode()
    run(lambda: bed.post(given, CHAT))
    assert bed.app.bodies[-1] == given


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_bound_gets_into_any_encoding(encoding: str) -> None:
    bed = Bed()
    bed.order(max_tokens=64)
    run(lambda: bed.post(json.dumps({"messages": [{"content": "hé"}]}).encode(encoding), CHAT))
    assert json.loads(bed.app.bodies[0]) == {"messages": [{"content": "hé"}], "max_tokens": 64}


def test_anthropics_errors_have_their_shape() -> None:
    bed = Bed()
    bed.order(shed=True)
    answer = run(lambda: bed.post({}, "/v1/messages"))
    assert json.loads(answer.messages[1]["body"])["type"] == "error"
    assert answer.error["type"] == "service_unavailable_error"


def test_an_application_below_a_root_path_is_guarded() -> None:
    bed = Bed()
    bed.order(shed=True)

    async def work() -> list[Any]:
        seen: list[Any] = []

        async def send(message: Any) -> None:
            seen.append(message)

        scope = {"type": "http", "method": "POST", "path": f"/api{COMPLETIONS}", "root_path": "/api", "headers": []}
        await bed.middleware(scope, None, send)  # type: ignore[arg-type]
        return seen

    assert run(work)[0]["status"] == 503


# -- whose it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "tenant", "trusted", "whose"),
    [
        ({}, "acme", True, "acme"),
        ({"user": "bob"}, "", True, "bob"),
        ({"user": "bob"}, "", False, "none"),
        ({"user": "bob"}, "acme", True, "acme"),
        ({"model": "adapter"}, "", True, "adapter"),
        ({"model": "tiny"}, "", True, "none"),
    ],
)
def test_the_tenant_is_who_the_scheduler_would_say(body: Any, tenant: str, trusted: bool, whose: str) -> None:
    bed = Bed()
    bed.order(default_quota=0)
    answer = run(lambda: bed.post({**completion(1), **body}, tenant=tenant, trusted=trusted))
    assert f"Tenant {whose} " in answer.error["message"]


def test_a_tenants_name_gets_into_no_header() -> None:
    bed = Bed()
    bed.order(default_quota=0)
    answer = run(lambda: bed.post({**completion(1), "user": "x\r\nset-cookie: a=1"}, tenant=""))
    assert answer.status == 429
    assert set(answer.headers) == {"content-type", "content-length", "retry-after", DECISION}
    assert "\r" not in "".join(answer.headers.values())
    assert "x__set-cookie: a=1" in answer.error["message"]


def test_the_maps_quotas_are_in_force_only_by_order(tmp_path: Any) -> None:
    mapped = tmp_path / "map.json"
    mapped.write_text(json.dumps({"acme": {"quota_blocks": 1}, "gold": {"quota_ratio": 0.5}}))
    bed = Bed(env={"KVTIDE_TENANT_MAP": str(mapped)})
    assert run(lambda: bed.post(completion(64))).status == 200
    done = bed.order()
    assert run(lambda: bed.post(completion(64))).status == 429
    assert run(lambda: bed.post(completion(700), tenant="gold")).status == 200
    assert run(lambda: bed.post(completion(900), tenant="gold")).status == 429
    assert done.undo is not None
    assert done.undo() == {"refused": 2}
    assert run(lambda: bed.post(completion(64))).status == 200


def test_refusals_are_counted_for_a_bounded_number_of_tenants() -> None:
    bed = Bed()
    bed.order(shed=True)
    for number in range(70):
        run(lambda name=f"t{number}": bed.post(completion(1), tenant=name))
    rows = {row.tenant: row.reasons for row in bed.gate.refused.rows()}
    assert len(rows) == 65
    assert (rows["t0"], rows["other"]) == ({"shed": 1}, {"shed": 6})


# -- two servers -----------------------------------------------------------------------------------------------------


def test_a_quota_holds_over_two_servers_in_total(tmp_path: Any) -> None:
    from tests.unit.admission.test_table import open_table

    shared = [open_table(tmp_path / "own") for _ in range(2)]
    beds = [Bed(open_table=lambda one=one: one.table) for one in shared]
    for bed in beds:
        bed.order(quotas={"acme": 10})

    async def work() -> list[int]:
        for bed in beds:
            bed.app.hold = asyncio.Event()
        seen = [Answer() for _ in range(8)]
        tasks = [asyncio.create_task(beds[n % 2].post(completion(64), seen=one)) for n, one in enumerate(seen)]
        await until(lambda: all(one.messages for one in seen))
        for bed in beds:
            assert bed.app.hold is not None
            bed.app.hold.set()
        await asyncio.gather(*tasks)
        return sorted(one.status for one in seen)

    assert run(work) == [200, 200] + [429] * 6
    for one in shared:
        assert one.table.total().blocks == 0
        one.close()


# -- short ones first ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [True, False])
def test_a_long_request_waits_for_short_ones_for_a_while(ends: bool) -> None:
    bed = Bed()
    bed.order(short_first=True, short_tokens=20, long_wait_seconds=2.0 if ends else 0.05)

    async def work() -> str:
        bed.app.hold = asyncio.Event()
        short = asyncio.create_task(bed.post(completion(10)))
        await until(lambda: len(bed.app.bodies) == 1)
        long = asyncio.create_task(bed.post(completion(100)))
        if ends:
            await asyncio.sleep(0.02)
            assert len(bed.app.bodies) == 1  # it waits
            bed.app.hold.set()
        await until(lambda: len(bed.app.bodies) == 2)
        assert short.done() == ends
        bed.app.hold.set()
        await short
        return str((await long).headers[DECISION])

    assert run(work) == "admitted; waited"


def test_a_long_request_that_is_alone_does_not_wait() -> None:
    bed = Bed()
    bed.order(short_first=True, short_tokens=20)
    assert run(lambda: bed.post(completion(100))).headers[DECISION] == "admitted"


# -- failing open --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["look", "take"])
def test_what_raises_lets_the_request_in_and_after_five_times_the_gate_is_off(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = Bed()
    bed.order(default_quota=0)
    calls = 0

    async def broken(_self: Gate, passage: Any) -> None:
        nonlocal calls
        calls += 1
        if step == "look":
            await passage.body.read()
        raise RuntimeError("planted")

    monkeypatch.setattr(Gate, step, broken)
    sent = json.dumps(completion(10)).encode()
    for _ in range(ERROR_LIMIT + 2):
        assert run(lambda: bed.post(sent, pieces=1)).status == 200
    assert calls == ERROR_LIMIT
    assert bed.app.bodies == [sent] * (ERROR_LIMIT + 2)
    assert HOOK in bed.guard.off
    with pytest.raises(RefusedError, match="planted"):
        bed.order()


def test_what_was_taken_before_the_gate_went_off_is_given_back() -> None:
    bed = Bed()
    bed.order(default_quota=50)

    async def work() -> None:
        bed.app.hold = asyncio.Event()
        task = asyncio.create_task(bed.post(completion(10)))
        await until(lambda: len(bed.app.bodies) == 1)
        bed.guard.off[HOOK] = "planted"
        bed.app.hold.set()
        await task

    run(work)
    assert bed.held() == (0, 0, 0)


def test_a_lock_that_nobody_gives_back_lets_requests_in(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    bed.order(default_quota=0)
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        bed.clock.now += 0.125

    bed.gate._sleep = sleep
    monkeypatch.setattr(Table, "try_lock", lambda _self: False)
    for _ in range(ERROR_LIMIT + 1):
        answer = run(lambda: bed.post(completion(10)))
        assert (answer.status, answer.headers[DECISION]) == (200, "admitted; uncounted")
    assert len(waited) == 2  # once somebody has waited in vain, nobody waits
    assert bed.guard.errors == {}
    monkeypatch.undo()
    assert run(lambda: bed.post(completion(10))).status == 429


async def until(what: Any) -> None:
    """Let others run until ``what`` holds; the bound of :func:`run` ends it."""
    while not what():  # noqa: ASYNC110 - it is looked at from outside
        await asyncio.sleep(0.001)
