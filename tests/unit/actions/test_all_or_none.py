"""One plan on several processes: all of them or none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from agent.actions.executor import new_action
from agent.actions.persons import OrderError, Persons
from agent.actions.types import Expectation, Outcome
from agent.policy.types import Policy
from agent.signals.types import NodeSignals, TenantSignals
from engine_hooks.levers.orders import LeverRow
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import Rig, Rules, policy, short
from tests.unit.actions.test_safety import plan

TENANTS = NodeSignals(tenants=(TenantSignals(engine="m", tenant="acme", share_ratio=0.6),))


def rules() -> Rules:
    return Rules("admission", "")


async def two_servers(make_rig: MakeRig, chosen: Policy | None = None) -> Rig:
    rig = await make_rig(chosen, levers={})
    for name in ("f1", "f2"):
        await rig.add(instance=name, role="frontend", levers={"admission": rules()})
    rig.signals = TENANTS
    return rig


async def test_all_api_servers_get_the_same_rules(make_rig: MakeRig) -> None:
    rig = await two_servers(make_rig)
    await rig.seconds(1, short(), detail=None)
    (found,) = rig.done
    assert (found.plan.lever, found.phase, found.plan.targets) == ("admission", "in_force", ("f1", "f2"))
    assert [each.desk.in_force()[0].arguments for each in rig.processes[1:]] == [{"quotas": {"acme": 250}}] * 2


async def test_the_core_stands_in_where_no_api_server_can_be_asked(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(ladder=["quotas"]), levers={"enforce_admission": Rules("enforce_admission", "")})
    rig.signals = TENANTS
    missing = LeverRow(lever="admission", ok=False, reason="nobody is in front of it")
    levers = (*rig.processes[0].desk.rows(), missing)
    await rig.seconds(1, short(), levers=levers, members=())
    assert [(each.plan.lever, each.phase) for each in rig.done] == [("enforce_admission", "in_force")]
    with pytest.raises(OrderError, match="unsupported: nobody is in front of it"):
        await Persons(rig.actions).order("admission", "m", {"shed": True}, by="ann")


async def test_one_that_refuses_keeps_all_from_it(make_rig: MakeRig) -> None:
    rig = await two_servers(make_rig)
    rig.processes[2].levers["admission"].fails = ValueError("no")
    await rig.seconds(1, short())
    (found,) = rig.done
    assert found.phase == "failed"
    assert [each.code for each in found.outcomes] == ["done", "failed"]
    assert not any(each.desk.in_force() for each in rig.processes)


async def test_one_that_does_not_answer_is_undone_too(make_rig: MakeRig) -> None:
    rig = await two_servers(make_rig, policy(answer_seconds=2.0))
    silent = rig.processes[2]
    silent.silent = True
    await rig.seconds(1, short())
    (found,) = rig.done
    assert found.phase == "failed"
    assert found.outcomes[1].code == "no_answer"
    assert [order.op for order in silent.orders] == ["apply", "undo"]
    assert not rig.processes[1].desk.in_force()


@pytest.mark.parametrize("first", [False, True], ids=["both refuse", "one of them does"])
async def test_a_change_that_is_refused_leaves_what_was_in_force_at_all(make_rig: MakeRig, first: bool) -> None:
    rig = await make_rig(levers={})
    one, other = [await rig.add(instance=name, role="frontend", levers={"admission": rules()}) for name in ("f1", "f2")]
    await rig.look()
    persons = Persons(rig.actions)
    base = await persons.order("admission", "m", {"shed": True}, by="ann", minutes=5)
    other.levers["admission"].refuses = one.levers["admission"].refuses = ("quotas",)
    if first:
        one.levers["admission"].refuses = ()
    changed = await persons.order("admission", "m", {"quotas": {"acme": 1}}, by="ann")
    assert (changed.phase, changed.reason) == ("refused", "bad_argument: no")
    assert [each.desk.in_force()[0].arguments for each in (one, other)] == [{"shed": True}] * 2
    kept = rig.actions.book.actions[base.id]
    assert (kept.phase, kept.until, kept.plan.arguments) == ("in_force", base.until, {"shed": True})


async def test_a_change_that_one_does_not_answer_ends_it_for_all(make_rig: MakeRig) -> None:
    rig = await two_servers(make_rig, policy(answer_seconds=2.0, mode="observe"))
    persons = Persons(rig.actions)
    await rig.look()
    base = await persons.order("admission", "m", {"shed": True}, by="ann")
    rig.processes[2].silent = True
    assert (await persons.order("admission", "m", {"quotas": {"acme": 1}}, by="ann")).phase == "failed"
    assert rig.actions.book.actions[base.id].phase == "expired", "the lease ends it where it can't be said"
    assert not rig.processes[1].desk.in_force()


async def test_one_that_comes_later_does_it_too(make_rig: MakeRig) -> None:
    """As after a restart of the agent: the engine's processes connect one by one."""
    rig = await make_rig(levers={})
    rig.signals = TENANTS
    first = await rig.add(instance="f1", role="frontend", levers={"admission": rules()})
    await rig.seconds(1, short(), detail=None)
    second = await rig.add(instance="f2", role="frontend", levers={"admission": rules()})
    await rig.seconds(1, short(tier="note"))
    (found,) = rig.done
    assert (found.phase, found.plan.targets) == ("in_force", ("f1", "f2"))
    assert [each.desk.in_force()[0].arguments for each in (first, second)] == [{"quotas": {"acme": 250}}] * 2
    await rig.seconds(60, short(tier="note"))  # its lease is renewed as the other's is
    assert [len(each.desk.in_force()) for each in (first, second)] == [1, 1]
    (found,) = rig.done
    assert found.phase == "in_force"
    await rig.actions.tasks.begin("m", rig.actions.executor.undo(found, "enough"))
    assert [each.desk.in_force() for each in (first, second)] == [(), ()]


async def test_one_that_comes_later_and_will_not_ends_it_for_all(make_rig: MakeRig) -> None:
    rig = await make_rig(levers={})
    rig.signals = TENANTS
    first = await rig.add(instance="f1", role="frontend", levers={"admission": rules()})
    await rig.seconds(1, short())
    await rig.add(instance="f2", role="frontend", levers={"admission": rules()}, allowed=())
    await rig.seconds(1, short(tier="note"))
    (found,) = rig.done
    assert found.phase == "undone"
    assert found.reason.startswith("a process that came later does not do it: not_allowed")
    assert first.desk.in_force() == ()


async def test_one_that_is_gone_ends_it_for_all(make_rig: MakeRig) -> None:
    rig = await two_servers(make_rig)
    await rig.seconds(1, short())
    rig.processes.pop().close()
    await rig.connected()
    await rig.seconds(1, short(tier="note"))
    (found,) = rig.done
    assert (found.phase, found.reason) == ("lost", "process f2 is gone")
    assert not rig.processes[1].desk.in_force()


async def test_an_answer_that_was_lost_does_not_do_it_twice(make_rig: MakeRig) -> None:
    rig = await make_rig()
    action = new_action(plan(arguments={"blocks": 9}), "enforce", rig.unix, None)
    for _ in range(3):
        await rig.actions.orders.ask(
            "apply",
            action=action.id,
            lever="watermark",
            targets=["i1"],
            arguments={"blocks": 9},
            lease_seconds=30.0,
            seconds=5.0,
        )
    assert rig.processes[0].levers["watermark"].calls["apply"] == 1


@pytest.mark.parametrize("done", ["extend", "loosen", "undo", "change"])
async def test_what_is_measured_while_an_answer_is_waited_for_stays(make_rig: MakeRig, done: str) -> None:
    rig = await make_rig(levers={})
    for name in ("f1", "f2"):
        await rig.add(instance=name, role="frontend", levers={"admission": rules()})
    await rig.look()
    first = () if done == "extend" else ("f2",)
    expected = Expectation(signal="use_ratio", direction="down", amount=0.1, seconds=60.0)
    wanted = plan(lever="admission", targets=("f1", *first), arguments={"shed": True}, expected=expected)
    action = await rig.actions.executor.run(new_action(wanted, "enforce", rig.unix, 0.5))
    assert action is not None
    assert (action.phase, action.verified) == ("in_force", "not_yet")
    ask = rig.actions.orders.ask

    async def measured_meanwhile(*args: Any, **named: Any) -> tuple[Outcome, ...]:
        outcomes = await ask(*args, **named)
        rig.actions.book.set(replace(rig.actions.book.now(action), verified="helped", after=0.25))
        return outcomes

    rig.actions.orders.ask = measured_meanwhile  # type: ignore[method-assign]
    executor, other = rig.actions.executor, {"quotas": {"acme": 1}}
    change = new_action(replace(wanted, arguments=other, amends=action.id), "enforce", rig.unix, None)
    await {
        "extend": lambda: executor.extend(action, ("f2",)),
        "loosen": lambda: executor.loosen(action, other, "calm"),
        "undo": lambda: executor.undo(action, "enough"),
        "change": lambda: executor.run(change),
    }[done]()
    found = rig.actions.book.now(action)
    assert (found.verified, found.after) == ("helped", 0.25)
    assert found.plan.targets == ("f1", "f2")
    assert found.phase == ("undone" if done == "undo" else "in_force")
    assert found.plan.arguments == (other if done in ("loosen", "change") else {"shed": True})
