"""From a verdict to a lever in an engine and back, over a real link."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from agent.actions.persons import Persons
from engine_hooks.levers.base import RefusedError
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import Rules, policy, short
from tests.unit.actions.test_planner import SURGE, busy_tenant
from tests.unit.details import make_detail, make_leak
from tests.unit.support import eventually_async


async def test_a_verdict_that_stands_pulls_the_mildest_lever(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(breaches=3))
    levers = rig.processes[0].levers
    await rig.seconds(2, short())
    assert not rig.done
    assert rig.refusals() == {"hysteresis": 1}
    await rig.seconds(1, short())
    assert [(each.plan.lever, each.phase) for each in rig.done] == [("watermark", "in_force")]
    assert levers["watermark"].value == 50
    assert levers["active_cap"].calls["apply"] == 0


async def test_nothing_is_done_without_a_verdict_or_in_observe(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(mode="observe"))
    await rig.seconds(5, short())
    assert not rig.done
    assert not rig.sent
    assert rig.refusals() == {"observe": 2}  # watermark and active cap, each told once


async def test_what_helps_stays_and_is_taken_back_step_by_step_when_calm(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(calm_seconds=30.0, undo_step_seconds=5.0))
    watermark = rig.processes[0].levers["watermark"]
    await rig.seconds(1, short())
    rig.held = 900
    await rig.seconds(4, short())
    assert [each.verified for each in rig.done] == ["helped"]
    await rig.seconds(29)
    assert watermark.value == 50
    values = []
    for _ in range(30):
        await rig.seconds(1)
        values.append(watermark.value)
    assert list(dict.fromkeys(values)) == [25, 12, 0]
    assert rig.done[0].phase == "undone"
    assert rig.done[0].reason == "it is calm again"


async def test_what_does_not_help_is_undone_and_the_next_rung_has_its_turn(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(verify_seconds=10.0))
    await rig.seconds(13, short())
    first, second = rig.done
    assert (first.plan.lever, first.phase, first.verified) == ("watermark", "undone", "did_not")
    assert (second.plan.lever, second.phase) == ("active_cap", "in_force")
    assert rig.processes[0].levers["watermark"].value == 0
    assert rig.actions.book.breaker.failures == 1


async def test_never_two_levers_at_once(make_rig: MakeRig) -> None:
    rig = await make_rig()
    for _ in range(15):
        await rig.seconds(1, short(), short(kind="preemption_thrash"))
        values = [lever.value for lever in rig.processes[0].levers.values()]
        assert sum(map(bool, values)) == 1
    assert len(rig.done) == 1


async def test_leases_are_renewed_while_the_agent_lives(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(calm_seconds=1e6))
    await rig.seconds(1, short())
    rig.held = 800
    await rig.seconds(120, short(tier="note"))
    assert rig.processes[0].levers["watermark"].value == 50
    assert rig.done[0].phase == "in_force"


async def test_a_lease_that_ran_out_in_the_engine_is_closed_here(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(calm_seconds=1e6))
    await rig.seconds(1, short())
    rig.held = 800
    rig.clock.now += 31  # the agent was stopped for so long
    rig.processes[0]._tick()
    await rig.seconds(6)
    assert rig.processes[0].levers["watermark"].value == 0
    assert rig.done[0].phase == "expired"


async def test_an_engine_that_refuses_is_not_asked_again_at_once(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.processes[0].levers["watermark"].fails = RefusedError("nothing", "it is as high already")
    await rig.seconds(3, short())
    first, second = rig.done
    assert (first.plan.lever, first.phase, first.reason) == ("watermark", "refused", "nothing: it is as high already")
    assert (second.plan.lever, second.phase) == ("active_cap", "in_force")
    assert rig.actions.book.breaker.failures == 0


async def test_what_fails_counts_towards_the_breaker(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(breaker_failures=2))
    for lever in rig.processes[0].levers.values():
        lever.fails = ValueError("broken")
    await rig.seconds(130, short())
    assert [each.phase for each in rig.done] == ["failed", "failed"]
    assert rig.actions.book.breaker.open
    assert rig.refusals()["breaker"] >= 1


async def test_dry_run_sends_nothing_but_try(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(mode="dry-run"))
    await rig.seconds(200, short())
    assert {order.op for order in rig.sent} == {"try"}
    levers = rig.processes[0].levers
    assert all(lever.calls["apply"] == lever.calls["undo"] == 0 for lever in levers.values())
    assert {each.phase for each in rig.done} == {"would"}
    assert rig.done[0].outcomes[0].effect == {"before": 0, "after": 50}


async def test_a_dry_run_that_is_not_answered_has_failed_and_opens_no_breaker(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(mode="dry-run", answer_seconds=2.0, breaker_failures=1, ladder=["watermark"]))
    rig.processes[0].silent = True
    await rig.seconds(1, short())
    assert [(each.phase, each.reason) for each in rig.done] == [("failed", "no_answer: no answer within 2 s")]
    assert not rig.actions.book.breaker.open
    rig.processes[0].silent = False
    rig.processes[0].levers["watermark"].fails = RefusedError("nothing", "it is as high already")
    await rig.seconds(130, short())
    assert rig.done[-1].phase == "refused"


async def test_dry_run_asks_a_lever_that_is_not_allowed_and_enforce_does_not(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(mode="dry-run"), allowed=())
    await rig.seconds(1, short())
    assert rig.done[0].phase == "would"
    rig.actions.policy = policy()
    rig.sent.clear()
    await rig.seconds(70, short())
    assert not rig.sent
    assert rig.refusals()["unsupported"] >= 1


@pytest.mark.parametrize("age", [6.0, None])
async def test_stale_data_is_refused(make_rig: MakeRig, age: float | None) -> None:
    rig = await make_rig()
    await rig.look(short(), report_age_seconds=age)
    assert not rig.sent
    assert rig.refusals() == {"stale": 1}


async def test_an_engine_that_falls_silent_is_refused_aloud(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(cooldown_seconds=5.0, ladder=["watermark"], calm_seconds=1e6))
    await rig.seconds(1, short())
    rig.held = 900
    await rig.seconds(4, short())
    rig.sent.clear()
    # What stands there is out of sight now, and so are the numbers that plans are made of.
    await rig.seconds(8, short(held=True), phase="silent", pool=None, report_age_seconds=7.0)
    assert rig.refusals()["stale"] == 1
    assert {order.op for order in rig.sent} <= {"renew"}
    await rig.seconds(3, phase="silent", pool=None, report_age_seconds=7.0)  # nothing stands any more: nobody asks
    assert rig.refusals()["stale"] == 1
    await rig.seconds(1, short())  # and it is back
    assert len(rig.done) == 2


async def test_how_actions_ended_is_counted(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(verify_seconds=10.0, ladder=["watermark", "reclaim_orphans"], calm_seconds=1e6))
    await rig.seconds(13, short())
    assert [(each.lever, each.code, each.count) for each in rig.actions.state().done] == [
        ("watermark", "did_not_help", 1)
    ]


@pytest.mark.parametrize(("left", "ended"), [(0, "done"), (40, "did_not_help")])
async def test_what_has_no_way_back_is_counted_once_it_is_known(make_rig: MakeRig, left: int, ended: str) -> None:
    rig = await make_rig(policy(verify_seconds=5.0, breaker_failures=9))

    def leaked(blocks: int, at: float) -> dict[str, object]:
        leaks = (make_leak(blocks=blocks, age_seconds=20.0 + at),) if blocks else ()
        return {"detail": make_detail(leaks=leaks)}

    verdict = short(kind="kv_orphan")
    await rig.seconds(1, verdict, **leaked(40, 0))
    assert rig.done[0].phase == "done"
    assert rig.actions.state().done == ()
    for second in range(8):
        await rig.seconds(1, verdict, **leaked(left, 1.0 + second))
    assert [(each.lever, each.code, each.count) for each in rig.actions.state().done] == [("reclaim_orphans", ended, 1)]


async def test_leaked_blocks_do_not_wait_for_what_a_throttle_does(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(verify_seconds=60.0, calm_seconds=1e6))
    young: dict[str, Any] = {"detail": make_detail(leaks=(make_leak(blocks=40, age_seconds=9.0),))}
    await rig.seconds(3, short(tier="page"), short(kind="kv_orphan"), **young)
    assert [(each.plan.lever, each.verified) for each in rig.done] == [("watermark", "not_yet")]
    aged: dict[str, Any] = {"detail": make_detail(leaks=(make_leak(blocks=40, age_seconds=12.0),))}
    await rig.seconds(1, short(tier="page"), short(kind="kv_orphan"), **aged)
    throttle, cure = rig.done
    assert (cure.plan.lever, cure.phase) == ("reclaim_orphans", "done")
    # Whose doing it is that the pool empties now can't be told: it is no success of the throttle's, and no failure.
    assert (throttle.phase, throttle.verified) == ("in_force", "unknown")
    assert throttle.reason == f"not measured: action {cure.id} came between"
    rig.held = 500
    await rig.seconds(3, detail=make_detail(leaks=()))
    assert [each.verified for each in rig.done] == ["unknown", "helped"]
    assert rig.actions.book.breaker.failures == 0


async def test_an_order_for_which_there_were_too_many_is_given_again(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(calm_seconds=1e6, verify_seconds=1e4))
    process = rig.processes[0]
    link, lever = process.link, process.levers["watermark"]
    link._allowance, link._allowed_at = -1e6, time.monotonic()  # none is left, and none comes for long
    looking = asyncio.create_task(rig.seconds(1, short()))
    await eventually_async(lambda: sum(order.op == "apply" for order in rig.sent) > 1)
    assert lever.calls["apply"] == 0
    link._allowance = 1e9
    await looking
    assert [(each.phase, each.outcomes[0].code) for each in rig.done] == [("in_force", "done")]
    assert lever.calls["apply"] == 1
    # A renewal that was turned away says nothing about the lease: it is still in force, and soon renewed.
    link._allowance = -1e6
    await rig.seconds(11, short())
    link._allowance = 1e9
    before = sum(order.op == "renew" for order in rig.sent)
    await eventually_async(lambda: rig.actions._leases._renewed[rig.done[0].id] < rig.clock.now - 9.0)
    await rig.seconds(2, short())
    assert sum(order.op == "renew" for order in rig.sent) > before > 0
    assert rig.done[0].phase == "in_force"


async def test_an_amended_throttle_that_does_not_help_goes_back(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(ladder=["watermark"], verify_seconds=10.0, cooldown_seconds=20.0))
    await rig.seconds(1, short())
    rig.held = 940
    await rig.seconds(22, short())
    assert [each.plan.lever for each in rig.done] == ["watermark", "watermark"]
    assert rig.processes[0].levers["watermark"].value == 100
    await rig.seconds(14, short())
    assert rig.processes[0].levers["watermark"].value == 50
    assert [each.verified for each in rig.done] == ["helped", "did_not"]


async def test_a_mode_that_is_taken_back_takes_back_what_is_in_force(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.seconds(1, short())
    rig.actions.policy = policy(mode="observe")
    await rig.seconds(1, short())
    assert rig.done[0].phase == "undone"
    assert rig.processes[0].levers["watermark"].value == 0


async def test_a_tenant_that_surges_gets_fewer_at_once_and_all_of_it_back_when_it_is_calm(make_rig: MakeRig) -> None:
    quick = {"cooldown_seconds": 1.0, "calm_seconds": 5.0, "undo_step_seconds": 1.0}
    rig = await make_rig(policy(ladder=("concurrency",), **quick), levers={})
    front = await rig.add(instance="f1", role="frontend", levers={"admission": Rules("admission", "")})

    def limits() -> list[object]:
        return [row.arguments.get("concurrency") for row in front.desk.in_force()]

    await rig.seconds(1, SURGE, detail=busy_tenant(20, 10))
    assert limits() == [{"acme": 24}]
    await rig.seconds(4, SURGE, detail=busy_tenant(20, 4))  # it is obeyed, has helped, and others wait all the same
    assert limits() == [{"acme": 19}]
    await rig.seconds(4, SURGE, detail=busy_tenant(19, 0))
    assert limits() == [{"acme": 15}]
    seen = []
    for _ in range(30):
        await rig.seconds(1, detail=busy_tenant(12, 0))
        seen += [each for each in limits() if not seen or each != seen[-1]]
    assert seen == [{"acme": 15}], "as many again as it has are no limit: the rule is taken off at once"
    assert limits() == []
    assert {each.verified for each in rig.done if each.plan.rung == "concurrency"} == {"helped"}


async def test_the_twin_that_comes_with_the_others_keeps_what_it_has(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(ladder=("concurrency",)), levers={})
    front = await rig.add(instance="f1", role="frontend", levers={"admission": Rules("admission", "")})
    await rig.seconds(20, short(tier="page"), detail=busy_tenant(20, 10))  # the pool is short, and nobody has surged
    assert (front.desk.in_force(), rig.done) == ((), [])


@pytest.mark.parametrize(
    ("forbid", "why"),
    [
        (lambda persons: persons.switch(on=False, by="ann"), "switched off by ann"),
        (lambda persons: persons.veto("*", "*", 1.0, by="ann"), "vetoed by ann"),
        (lambda persons: persons.mark("m", "rollout", by="ann"), "held by ann: rollout"),
    ],
)
async def test_what_is_forbidden_while_its_intent_is_written_is_not_done(
    make_rig: MakeRig, forbid: Callable[[Persons], object], why: str
) -> None:
    rig = await make_rig()
    rig.clock.now += 1.0
    rig.actions.take(rig.state(short()))
    assert not rig.actions.tasks.idle()
    forbid(Persons(rig.actions))
    await eventually_async(rig.actions.tasks.idle)
    (done,) = rig.done
    assert (done.phase, done.reason, rig.sent) == ("refused", why, [])
