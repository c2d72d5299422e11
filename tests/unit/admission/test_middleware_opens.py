"""The middleware fails open: what raises in it, or waits in vain, lets the request in."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine_hooks.frontend.admission.gate import Gate
from engine_hooks.frontend.admission.middleware import HOOK
from engine_hooks.frontend.admission.table import Table
from engine_hooks.guard import ERROR_LIMIT
from engine_hooks.levers.base import RefusedError
from tests.unit.admission.asking import DECISION, Bed, completion, run, until


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


@pytest.mark.parametrize("where", ["begins", "ends"])
def test_what_raises_while_no_rules_are_in_force_lets_the_request_in(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = Bed()
    bed.gate.notes = True

    @contextlib.contextmanager
    def broken(_self: Gate, _path: str) -> Iterator[None]:
        if where == "begins":
            raise RuntimeError("planted")
        yield
        raise RuntimeError("planted")

    monkeypatch.setattr(Gate, "noting", broken)
    for _ in range(ERROR_LIMIT + 2):
        assert run(lambda: bed.post(completion(10))).status == 200
    assert bed.guard.errors == {HOOK: ERROR_LIMIT}
    assert HOOK in bed.guard.off


@pytest.mark.parametrize(("part", "rules"), [("messages", {"shed": True}), ("_told", {"default_quota": 50})])
def test_an_answer_that_can_t_be_made_is_the_applications_own(
    part: str, rules: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = Bed()
    bed.order(**rules)

    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(f"engine_hooks.frontend.admission.middleware.{part}", broken)
    assert run(lambda: bed.post(completion(10))).status == 200
    assert bed.guard.errors == {HOOK: 1}
    assert bed.held() == (0, 0, 0)


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
