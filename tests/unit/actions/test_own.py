"""Levers that no process is asked for: a restart passes all gates, has its intent first, and is never done twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent.actions.actions import Actions
from agent.actions.journal import FILE
from agent.actions.journal_file import look_up
from agent.actions.own import Forbidden
from agent.actions.persons import OrderError, Persons
from agent.actions.types import Outcome, Plan
from agent.policy.types import Policy
from agent.subject import Subject
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import Rig, policy, short

STALL = short(kind="kv_stall", tier="page", evidence={"stalled_seconds": 40.0, "running": 0.0})
PRESSURE = short(tier="page")
LADDER = {"ladder": ("restart",), "opt_in": ("restart",), "cooldown_seconds": 1.0, "breaker_failures": 9}


class Lever:
    """A supervisor's lever. ``journal``: where it looks for its own intent when it is pulled."""

    def __init__(self, journal: Path, code: str = "done", why: str = "") -> None:
        self.journal, self.code, self.why = journal, code, why
        self.pulled: list[Plan] = []
        self.phases: list[str] = []
        self.forbidden: Forbidden = str
        self.hangs = False

    def why_not(self, engine: str) -> str:
        return self.why

    async def would(self, plan: Plan) -> Outcome:
        return Outcome(target=plan.targets[0], code="would", detail="", effect={})

    async def apply(self, plan: Plan, forbidden: Forbidden) -> Outcome:
        self.pulled.append(plan)
        self.forbidden = forbidden
        self.phases += [each.phase for each in look_up(self.journal, 9)[0] if each.plan == plan]
        if self.hangs:
            await asyncio.sleep(3600.0)
        return Outcome(target=plan.targets[0], code=self.code, detail="by command", effect={"seconds": 1.0})


def with_lever(rig: Rig, **changes: Any) -> Lever:
    lever = Lever(rig.folder / "state" / FILE, **changes)
    rig.actions._own["restart"] = lever  # type: ignore[index]
    return lever


async def test_a_stall_with_two_evidences_restarts_with_its_intent_on_the_disk(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(**LADDER))
    lever = with_lever(rig)
    await rig.seconds(1, STALL, PRESSURE)
    (plan,) = lever.pulled
    assert (plan.lever, plan.targets, plan.subject) == ("restart", ("i1",), Subject(scope="engine", engine="m"))
    assert lever.phases, "the intent is in the journal before it is pulled"
    assert not rig.sent, "no process is asked"
    assert [(each.phase, each.outcomes[0].detail) for each in rig.done] == [("done", "by command")]


@pytest.mark.parametrize(
    ("chosen", "verdicts", "code"),
    [
        (policy(**LADDER | {"opt_in": ()}), (STALL, PRESSURE), "observe"),
        (policy(**LADDER | {"mode": "observe"}), (STALL, PRESSURE), "observe"),
        (policy(**LADDER), (STALL,), "evidence"),
        (policy(**LADDER | {"off_peak": ("02:00-03:00",)}), (STALL, PRESSURE), "window"),
    ],
)
async def test_what_stands_in_its_way(make_rig: MakeRig, chosen: Policy, verdicts: tuple[Any, ...], code: str) -> None:
    rig = await make_rig(chosen)
    lever = with_lever(rig)
    await rig.seconds(3, *verdicts)
    assert (lever.pulled, rig.refusals()) == ([], {code: 1})


async def test_without_a_supervisor_it_is_unsupported_with_the_reason(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(**LADDER))
    with_lever(rig, why="nobody is named who restarts m")
    await rig.seconds(2, STALL, PRESSURE)
    assert rig.refusals() == {"unsupported": 1}
    with pytest.raises(OrderError, match="nobody is named who restarts m"):
        await Persons(rig.actions).order("restart", "m", {}, by="ann")


async def test_a_loop_of_restarts_opens_the_breaker(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(**LADDER, restarts_per_hour=2))
    lever = with_lever(rig, code="failed")
    for _ in range(20):
        rig.actions.memory._in_vain.clear()  # as a successor does that stalls, too
        await rig.seconds(3, STALL, PRESSURE)
    assert len(lever.pulled) == 2
    assert rig.actions.book.breaker.open
    assert rig.actions.book.breaker.reason == "m was restarted 2 times within an hour (actions.restarts_per_hour)"
    assert Persons(rig.actions).close_breaker(by="ann")
    rig.actions.memory._in_vain.clear()
    await rig.seconds(1, STALL, PRESSURE)
    assert len(lever.pulled) == 3, "a person has looked"


MISSING = short(kind="engine_missing", tier="page", evidence={"silent_seconds": 400.0})
WAS_STALLED = short(kind="kv_stall", tier="page", held=True, evidence={"stalled_seconds": 40.0})
SILENT_LADDER = {"ladder": ("restart", "restart_silent"), "opt_in": ("restart", "restart_silent")}


async def test_an_engine_that_is_silent_for_very_long_is_restarted_on_two_evidences(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(**SILENT_LADDER))
    lever = with_lever(rig)
    await rig.seconds(1, MISSING, WAS_STALLED, phase="silent", report_age_seconds=400.0)
    (plan,) = lever.pulled
    assert (plan.lever, plan.rung, plan.kind, plan.targets) == ("restart", "restart_silent", "engine_missing", ("i1",))


@pytest.mark.parametrize(
    ("changes", "verdicts", "engine", "codes"),
    [
        ({}, (MISSING,), {}, {"evidence": 1}),  # silence alone: its process may only be slow
        ({"opt_in": ("restart",)}, (MISSING, WAS_STALLED), {}, {"observe": 1}),
        ({"opt_in": ("restart_silent",)}, (MISSING, WAS_STALLED), {}, {"observe": 1}),
        ({"silent_seconds": 600.0}, (MISSING, WAS_STALLED), {}, {}),
        ({"off_peak": ("02:00-03:00",)}, (MISSING, WAS_STALLED), {}, {"window": 1}),
        ({}, (short(kind="engine_missing", tier="page", evidence={"workers": 1.0}), STALL), {"phase": "live"}, None),
    ],
)
async def test_what_keeps_a_silent_engine_from_a_restart(
    make_rig: MakeRig, changes: Any, verdicts: tuple[Any, ...], engine: Any, codes: dict[str, int] | None
) -> None:
    rig = await make_rig(policy(**SILENT_LADDER | changes))
    lever = with_lever(rig)
    await rig.seconds(3, *verdicts, **{"phase": "silent", "report_age_seconds": 400.0} | engine)
    assert lever.pulled == []
    assert codes is None or rig.refusals() == codes


async def test_what_is_refused_by_the_supervisor_is_no_restart(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(**LADDER, restarts_per_hour=1))
    with_lever(rig, code="conflict")
    await rig.seconds(1, STALL, PRESSURE)
    assert [each.phase for each in rig.done] == ["refused"]
    assert not rig.actions.book.breaker.open


async def test_an_agent_that_is_killed_meanwhile_does_not_do_it_again(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(**LADDER))
    lever = with_lever(rig)
    lever.hangs = True
    rig.actions.tick()
    rig.clock.now += 1.0
    rig.actions.take(rig.state(STALL, PRESSURE))
    for _ in range(1000):
        if lever.pulled:
            break
        await asyncio.sleep(0.01)
    await rig.restart()
    after = with_lever(rig)
    await rig.seconds(3)
    (left,) = rig.done
    assert (left.phase, left.reason) == ("lost", "an agent before this one ended meanwhile: it is not done again")
    assert after.pulled == []
    assert isinstance(rig.actions, Actions)


async def test_a_person_s_order_and_try(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(mode="observe"))
    lever = with_lever(rig)
    await rig.look()
    tried = await Persons(rig.actions).order("restart", "m", {}, by="ann", attempt=True)
    assert (tried.phase, lever.pulled) == ("would", [])
    done = await Persons(rig.actions).order("restart", "m", {}, by="ann")
    assert (done.phase, done.by, len(lever.pulled)) == ("done", "ann", 1)


async def test_it_hears_what_is_forbidden_while_it_lasts(make_rig: MakeRig) -> None:
    """A drain takes minutes: who switches off or says no meanwhile is obeyed. A person's own order no veto stops."""
    rig = await make_rig(policy(**LADDER))
    lever, persons = with_lever(rig), Persons(rig.actions)
    await rig.seconds(1, STALL, PRESSURE)
    assert lever.forbidden() == ""
    persons.veto("restart", "m", 1.0, by="ann")
    assert lever.forbidden() == "vetoed by ann"
    await persons.order("restart", "m", {}, by="bob")
    assert lever.forbidden() == ""
    persons.switch(on=False, by="ann", why="INC-1")
    assert lever.forbidden() == "switched off by ann: INC-1"
