"""An agent that goes leaves its orders in force; the next one takes them over and makes none of them anew."""

from __future__ import annotations

from agent.actions.executor import new_action
from agent.actions.leases import SETTLE_SECONDS
from agent.actions.types import Action
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import Rig, policy, short
from tests.unit.actions.test_safety import plan


async def test_orders_in_force_are_handed_over(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(calm_seconds=1e6))
    await rig.seconds(1, short())
    rig.held = 800
    await rig.seconds(5, short())
    (before,) = rig.done
    await rig.restart()
    await rig.seconds(60, short(tier="note"))
    (after,) = rig.done
    assert (after.id, after.phase, after.verified) == (before.id, "in_force", "helped")
    assert "handed over" in after.reason
    watermark = rig.processes[0].levers["watermark"]
    assert (watermark.value, watermark.calls["apply"], watermark.calls["undo"]) == (50, 1, 0)
    assert {order.op for order in rig.sent} == {"renew"}


async def obeyed(rig: Rig, action: Action) -> None:
    """Have the engine do what ``action`` is about, as on an order whose answer nobody has heard."""
    outcomes = await rig.actions.orders.ask(
        "apply",
        action=action.id,
        lever="watermark",
        targets=["i1"],
        arguments=action.plan.arguments,
        lease_seconds=30.0,
        seconds=5.0,
    )
    assert outcomes[0].code == "done"


async def test_an_intent_that_the_engine_has_not_is_lost_and_not_sent(make_rig: MakeRig) -> None:
    rig = await make_rig()
    action = new_action(plan(), "enforce", rig.unix, None)
    await rig.actions.book.intend(action, 5.0)  # and then it is killed
    await rig.restart()
    await rig.seconds(SETTLE_SECONDS + 2)
    (found,) = rig.done
    assert (found.id, found.phase) == (action.id, "lost")
    assert not rig.sent


async def test_an_order_that_is_obeyed_a_moment_after_the_next_agent_came_is_taken_over(make_rig: MakeRig) -> None:
    """The agent ends, and what it ordered is still on its way when the engine has found the next one."""
    rig = await make_rig(policy(calm_seconds=1e6))
    action = new_action(plan(arguments={"blocks": 7}), "enforce", rig.unix, None)
    await rig.actions.book.intend(action, 5.0)
    await rig.restart()
    await rig.seconds(1)
    assert [each.phase for each in rig.done] == ["intent"]
    await obeyed(rig, action)
    await rig.seconds(1)
    (found,) = rig.done
    assert (found.phase, found.plan.arguments) == ("in_force", {"blocks": 7})
    assert rig.processes[0].levers["watermark"].calls["apply"] == 1


async def test_what_was_done_and_not_written_is_found_in_the_engine(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(calm_seconds=1e6))
    action = new_action(plan(arguments={"blocks": 7}), "enforce", rig.unix, None)
    await rig.actions.book.intend(action, 5.0)
    await obeyed(rig, action)
    await rig.restart()
    await rig.seconds(2)
    (found,) = rig.done
    assert (found.phase, found.plan.arguments) == ("in_force", {"blocks": 7})
    assert rig.processes[0].levers["watermark"].calls["apply"] == 1


async def test_an_engine_that_is_gone_closes_what_it_had(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(calm_seconds=1e6))
    await rig.seconds(1, short())
    rig.processes.pop().close()
    await rig.add(instance="i2")  # its successor: no order of the other's may reach it
    await rig.seconds(3)
    (found,) = rig.done
    assert (found.phase, found.reason) == ("lost", "process i1 is gone")
    assert rig.processes[0].orders == []


async def test_an_engine_that_does_not_come_back_to_the_next_agent(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(calm_seconds=1e6))
    await rig.seconds(1, short())
    rig.processes.pop().close()
    await rig.restart()
    await rig.seconds(20, instance="other")
    assert rig.done[0].phase == "in_force"  # it may still come: its lease has not run out for long
    await rig.seconds(25, instance="other")
    assert (rig.done[0].phase, rig.done[0].reason) == ("lost", "engine gone")


async def test_vetoes_and_the_switch_survive(make_rig: MakeRig) -> None:
    from agent.actions.persons import Persons

    rig = await make_rig()
    Persons(rig.actions).veto("watermark", "*", 60.0, by="ann")
    Persons(rig.actions).switch(on=False, by="ann", why="night")
    await rig.restart()
    assert rig.actions.book.vetoes[0].by == "ann"
    assert rig.actions.off == "switched off by ann: night"
    await rig.seconds(3, short())
    assert not rig.done


async def test_what_is_not_back_yet_is_not_taken_back_into_the_void(make_rig: MakeRig) -> None:
    """It is calm, and the engine has not found the new agent yet: its lease must not be forgotten."""
    rig = await make_rig(policy(calm_seconds=1.0, undo_step_seconds=0.0, ladder=["active_cap"]))
    await rig.seconds(1, short())
    process = rig.processes.pop()
    await rig.actions.close()
    rig.server.close()
    rig._begin()
    await rig.start()
    rig.server.close()  # nobody can connect
    lever = process.levers["active_cap"]
    await rig.seconds(5, instance="i1", phase="lost")
    assert [each.phase for each in rig.done] == ["in_force"]
    rig.server.start()
    rig.processes.append(process)
    await rig.connected()
    assert lever.value == 80
    await rig.seconds(3)
    assert lever.value == 0
    assert [each.phase for each in rig.done] == ["undone"]


async def test_what_can_not_be_reached_ends_by_its_lease(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.seconds(1, short())
    rig.server.close()
    await rig.actions.executor.undo(rig.done[0], "a person wants it")
    (found,) = rig.done
    assert found.phase == "expired"
    assert "the lease ends it" in found.reason
    rig.clock.now += 31
    rig.processes[0]._tick()
    assert rig.processes[0].levers["watermark"].value == 0
