"""What was in flight before the first rules came counts as soon as they are there, and until its answer is over."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_hooks.frontend.admission import earlier
from engine_hooks.frontend.admission.middleware import HOOK
from engine_hooks.frontend.admission.table import Table
from tests.unit.admission.asking import COMPLETIONS, Bed, completion, run, until
from tests.unit.admission.test_table import open_table


def bed(**kept: Any) -> Bed:
    """One whose engine is told what it gets, as vLLM's AsyncLLM is."""
    made = Bed(**kept)
    made.gate.notes = True

    def engine(body: bytes) -> None:
        asked = json.loads(body)
        prompt = asked["prompt"]
        params = SimpleNamespace(max_tokens=asked.get("max_tokens"), n=asked.get("n", 1))
        given = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}
        made.gate.needs(asked.get("user", "acme"), given, params)

    made.app.engine = engine
    return made


async def running(one: Bed, *bodies: dict[str, Any], tenant: str = "acme") -> list[asyncio.Task[Any]]:
    """Requests that have reached the engine, and are held there."""
    one.app.hold = one.app.hold or asyncio.Event()
    before = len(one.app.bodies)
    tasks = [asyncio.create_task(one.post(body, tenant=tenant)) for body in bodies]
    await until(lambda: len(one.app.bodies) == before + len(bodies))
    return tasks


def test_what_runs_counts_when_the_first_rules_come_and_not_for_ever() -> None:
    one = bed()

    async def work() -> None:
        tasks = await running(one, completion(64), completion(64))
        done = one.order(concurrency={"acme": 2}, retry_after=3)
        assert (done.effect["in_flight_requests"], done.effect["in_flight_blocks"]) == (2, 10)
        refused = await one.post(completion(1, 1))
        assert (refused.status, refused.error["code"]) == (429, "kvtide_concurrency")
        assert one.held() == (10, 2, 0)
        assert one.app.hold is not None
        one.app.hold.set()
        assert [answer.status for answer in await asyncio.gather(*tasks)] == [200, 200]
        assert (await one.post(completion(1, 1))).status == 200

    run(work)
    assert one.held() == (0, 0, 0)
    assert one.gate._breaker.inside == 0


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        ({"quotas": {"acme": 12}}, "kvtide_quota"),
        ({"quotas": {"acme": 20}}, ""),
        ({"reserved": {"gold": 85}}, "kvtide_reserved"),
        ({"long_sessions": {"acme": 1}, "long_tokens": 60}, "kvtide_long_sessions"),
        ({"long_sessions": {"acme": 1}, "long_tokens": 200}, ""),
        ({"in_flight": 1}, "kvtide_in_flight"),
        ({"in_flight": 2}, ""),
    ],
)
def test_each_rule_counts_it(rules: Any, refused: str) -> None:
    one = bed()

    async def work() -> None:
        tasks = await running(one, completion(64, 112))  # 11 blocks
        one.order(**rules)
        assert one.app.hold is not None
        if not refused:
            one.app.hold.set()
        answer = await one.post(completion(100, 40))
        assert (answer.error["code"] if answer.status != 200 else "") == refused
        one.app.hold.set()
        await asyncio.gather(*tasks)

    run(work)


def test_whose_it_is_and_how_much_is_what_the_engine_gets() -> None:
    one = bed()

    async def work() -> None:
        tasks = await running(one, {**completion(16), "user": "bob", "n": 3}, {"prompt": "x" * 640, "user": "eve"})
        one.order(quotas={"bob": 99})
        await until(lambda: not one.gate.earlier.pending)
        assert one.held("bob") == (6, 3, 0)
        assert one.held("eve")[1] == 1
        assert one.held("eve")[0] >= 10, "a text is estimated"
        assert one.app.hold is not None
        one.app.hold.set()
        await asyncio.gather(*tasks)

    run(work)


def test_it_counts_without_another_request_at_this_server(tmp_path: Path) -> None:
    """Of two API servers one has the requests, and the other gets the next."""
    shared = [open_table(tmp_path / "own") for _ in range(2)]
    first, second = (bed(open_table=lambda each=each: each.table) for each in shared)

    async def work() -> None:
        tasks = await running(first, completion(64), completion(64))
        await asyncio.to_thread(first.order, quotas={"acme": 12})  # as the link's thread does
        await asyncio.to_thread(second.order, quotas={"acme": 12})
        await until(lambda: not first.gate.earlier.pending)
        second.app.hold = None
        assert (await second.post(completion(64))).status == 429
        assert first.app.hold is not None
        first.app.hold.set()
        await asyncio.gather(*tasks)
        assert (await second.post(completion(64))).status == 200

    run(work)
    for each in shared:
        assert each.table.total().blocks == 0
        each.close()


@pytest.mark.parametrize("how", ["raises", "cancelled", "hook off"])
def test_it_is_given_back_however_it_ends(how: str) -> None:
    one = bed()

    async def work() -> None:
        (task,) = await running(one, completion(64))
        one.order(default_quota=50)
        await until(lambda: not one.gate.earlier.pending)
        assert one.held() == (5, 1, 0)
        assert one.app.hold is not None
        if how == "raises":
            one.app.error = RuntimeError("the application's own")
        if how == "hook off":
            one.guard.off[HOOK] = "planted"
        if how == "cancelled":
            task.cancel()
        one.app.hold.set()
        await asyncio.gather(task, return_exceptions=True)

    run(work)
    assert (one.held(), one.gate._breaker.inside, one.gate.earlier._live) == ((0, 0, 0), 0, set())


def test_a_lock_that_is_not_free_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one, tries = bed(), iter([False, False, True])
    monkeypatch.setattr(Table, "try_lock", lambda _self: next(tries, True))

    async def work() -> None:
        tasks = await running(one, completion(64))
        one.order(default_quota=50)
        await until(lambda: not one.gate.earlier.pending)
        assert one.held() == (5, 1, 0)
        assert one.app.hold is not None
        one.app.hold.set()
        await asyncio.gather(*tasks)

    run(work)


def test_a_gate_that_is_closed_meanwhile_gets_nothing_back() -> None:
    one = bed()

    async def work() -> None:
        tasks = await running(one, completion(64))
        one.order(default_quota=50)
        await until(lambda: not one.gate.earlier.pending)
        table = one.gate.table
        assert table is not None
        one.gate.close()
        table.close()
        assert one.app.hold is not None
        one.app.hold.set()
        assert [answer.status for answer in await asyncio.gather(*tasks)] == [200]

    run(work)
    assert one.guard.errors == {}


def test_where_no_rules_can_come_nothing_is_noted() -> None:
    one = bed()
    one.gate.notes = False

    async def work() -> None:
        tasks = await running(one, completion(64))
        assert (one.gate.earlier.pending, one.gate._breaker.inside) == (set(), 0)
        assert one.app.hold is not None
        one.app.hold.set()
        await asyncio.gather(*tasks)

    run(work)


def test_what_is_noted_is_bounded_and_touches_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier, "MOST", 2)
    one = bed()

    async def work() -> None:
        tasks = await running(one, *[completion(64)] * 3)
        assert len(one.gate.earlier.pending) == 2
        assert one.app.hold is not None
        one.app.hold.set()
        answers = await asyncio.gather(*tasks)
        assert [answer.headers for answer in answers] == [{"x-own": "1"}] * 3
        assert one.gate.earlier.pending == set()
        assert [scope["path"] for scope in one.app.scopes] == [COMPLETIONS] * 3

    run(work)
