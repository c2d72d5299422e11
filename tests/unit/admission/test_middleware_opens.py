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
from tests.bed.leak_plugin import kvtide_test_raise
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


class EachInTurn:
    """Has every call of one function of the hooks raise. ``names``: all that were called."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.raises = ""
        self.raised = 0

    def at_random(self, name: str) -> None:
        """What the plugin that plants calls at the beginning of each function."""
        self.names.add(name)
        if name == self.raises:
            self.raised += 1
            raise kvtide_test_raise.PlantedError(f"planted in {name}")


@pytest.fixture
def planter(monkeypatch: pytest.MonkeyPatch) -> EachInTurn:
    """Whatever the front end's classes do may raise; nothing does yet."""
    found = EachInTurn()
    monkeypatch.setattr(kvtide_test_raise, "PACKAGES", ("frontend",))
    wrap = kvtide_test_raise._wrap

    def planting(owner: Any, name: str, function: Any, by: Any) -> None:
        monkeypatch.setattr(owner, name, function)  # so that it is put back
        wrap(owner, name, function, by)

    monkeypatch.setattr(kvtide_test_raise, "_wrap", planting)
    kvtide_test_raise._plant(found)  # type: ignore[arg-type]
    return found


RULES: dict[str, dict[str, object] | None] = {
    "noting": None,
    "take": {"default_quota": 50, "max_tokens": 8, "short_first": True, "clean": True, "rate": 100.0},
    "look": {"shed": True},
}


@pytest.mark.parametrize("rules", RULES)
def test_whichever_function_raises_each_time_the_client_has_its_answer(rules: str, planter: EachInTurn) -> None:
    def served(raises: str) -> Bed:
        planter.raises, planter.raised = "", 0
        bed = Bed()
        bed.gate.notes = True
        if (order := RULES[rules]) is not None:
            bed.order(**order)
        planter.raises = raises
        for _ in range(ERROR_LIMIT + 2):
            answer = run(lambda: bed.post(completion(10), headers=((b"x-tenant", b"acme"),)))
            assert answer.status in ((200, 503) if rules == "look" else (200,)), raises
            assert answer.messages[-1].get("more_body", False) is False
        planter.raises = ""
        return bed

    served("")
    called = sorted(planter.names)
    assert f"{Gate.__module__}.Gate.{rules}" in called
    for name in called:
        bed = served(name)
        if planter.raised:  # else it is called by the order alone
            assert bed.guard.errors, name
        if rules != "look":
            assert run(lambda bed=bed: bed.post(completion(10))).status == 200


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
