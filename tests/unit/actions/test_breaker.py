"""Budget and breaker: 1,000 flapping breaches are the budget's actions, then nothing until a person looks."""

from __future__ import annotations

from agent.actions.persons import Persons
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import policy, short


async def test_a_thousand_flapping_breaches(make_rig: MakeRig) -> None:
    rig = await make_rig(
        policy(budget_per_hour=12, cooldown_seconds=5.0, calm_seconds=1.0, undo_step_seconds=0.0, breaches=1)
    )
    for _ in range(1000):
        rig.held = 970
        await rig.seconds(1, short())
        rig.held = 300  # it is over, and comes again
        await rig.seconds(1)
    sent = [each for each in rig.done if each.mode == "enforce"]
    assert len(sent) == 12
    assert sum(order.op == "apply" for order in rig.sent) == 12
    assert rig.actions.book.breaker.open
    assert not any(lever.value for lever in rig.processes[0].levers.values())

    assert Persons(rig.actions).close_breaker(by="ann")
    rig.held = 970
    await rig.seconds(1, short())
    assert len(rig.done) == 13
    assert rig.done[-1].phase == "in_force"


async def test_the_breaker_survives_a_restart_and_so_does_the_budget(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(breaker_failures=1))
    for lever in rig.processes[0].levers.values():
        lever.fails = ValueError("broken")
    await rig.seconds(2, short())
    assert rig.actions.book.breaker.open
    left = rig.actions.state().budget_left
    await rig.restart()
    assert rig.actions.book.breaker.open
    assert rig.actions.state().budget_left == left == 11
    await rig.seconds(200, short())
    assert len(rig.done) == 1
    Persons(rig.actions).close_breaker(by="ann")
    await rig.restart()
    assert not rig.actions.book.breaker.open
    assert rig.actions.state().budget_left == 12


async def test_actions_that_help_do_not_open_it(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(breaker_failures=2, cooldown_seconds=5.0, calm_seconds=1.0, undo_step_seconds=0.0))
    for _ in range(6):
        rig.held = 970
        await rig.seconds(1, short())
        rig.held = 300
        await rig.seconds(40)
    assert len(rig.done) == 6
    assert {each.verified for each in rig.done} == {"helped"}
    assert not rig.actions.book.breaker.open
