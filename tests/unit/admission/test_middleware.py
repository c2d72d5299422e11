"""The middleware over a small ASGI application: what clients see, and what is given back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.unit.admission.asking import COMPLETIONS, DECISION, Answer, Bed, completion, run, until


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
