"""From a verdict to a lever in an engine and back, over a real link."""

from __future__ import annotations

import pytest

from engine_hooks.levers.base import RefusedError
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import policy, short


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
