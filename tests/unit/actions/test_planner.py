"""Which lever for which verdict, mildest first; on values."""

from __future__ import annotations

from typing import Any

import pytest

from agent.actions.measure import measured
from agent.actions.memory import Memory
from agent.actions.planner import plans
from agent.actions.rules import RULES
from agent.actions.types import Action, Plan
from agent.actions.watching import milder
from agent.policy.actions import RUNGS
from agent.policy.types import Policy
from agent.signals.types import EngineSignals, NodeSignals, Score, TenantSignals
from agent.state import AgentState, Judgement, Verdict
from agent.subject import Subject
from engine_hooks.detail import LeakRow
from engine_hooks.levers.orders import LeverRow
from tests.unit.actions.rig import policy, short
from tests.unit.actions.test_safety import past
from tests.unit.builders import make_engine, make_frontend, make_pool, make_silent, make_state
from tests.unit.details import make_detail, make_leak, make_tenant, make_waiting

PAGE = {"tier": "page"}


def state(*verdicts: Verdict, front: bool = True, **engine: Any) -> AgentState:
    judgement = Judgement(
        at=0.0,
        verdicts=verdicts,
        signals=NodeSignals(
            engines=(EngineSignals(engine="m", instance="i1", hooked=True, age_seconds=1e4, settled=True),),
            tenants=engine.pop("tenants", ()),
        ),
        scores=engine.pop("scores", ()),
    )
    row = (LeverRow(lever="admission", ok=True),) if front else ()
    core = () if front else (LeverRow(lever="enforce_admission", ok=True),)
    values = {"members": (make_frontend(instance="f1", levers=row),), "levers": core, "running": 100, "detail": None}
    return make_state(make_engine(**values | engine), make_silent(), judgement=judgement)


def ladder(
    verdict: Verdict, *live: Action, chosen: Policy | None = None, memory: Memory | None = None, **engine: Any
) -> list[Plan]:
    found = state(verdict, **engine)
    assert found.judgement is not None
    known = memory or Memory()
    known.take(found.judgement, 1.0)
    answers = list(plans(found.judgement, found, chosen or policy(), known, live))
    assert len(answers) <= 1
    return list(answers[0]) if answers else []


def names(*args: Any, **kwargs: Any) -> list[str]:
    return [plan.rung for plan in ladder(*args, **kwargs)]


SILENT = make_detail(waiting=make_waiting(silent=2))
YOUNG, AGED = make_leak(age_seconds=9.0), make_leak(age_seconds=11.0)
SURGE = short(kind="tenant_surge", subject=Subject(scope="tenant", engine="m", tenant="acme"))
ACME = (
    TenantSignals(engine="m", tenant="acme", share_ratio=0.4),
    TenantSignals(engine="m", tenant="b", share_ratio=0.1),
)
DELAYED = short(kind="kv_delayed_free", evidence={"late_blocks": 40.0})
IDLE = short(kind="allocator_fragmentation", evidence={"whole_free_bytes": 2.0**30, "overcommit_ratio": 1.1})
HEAVY = short(kind="allocator_fragmentation", evidence={"overcommit_ratio": 1.3})


@pytest.mark.parametrize(
    ("verdict", "engine", "expected"),
    [
        (short(), {}, ["watermark", "active_cap"]),
        (short(**PAGE), {}, ["watermark", "active_cap", "shed"]),
        (short(), {"tenants": ACME}, ["quotas", "watermark", "active_cap"]),
        (short(), {"running": 10}, ["watermark"]),
        (short(kind="preemption_thrash", **PAGE), {}, ["watermark", "active_cap", "shed"]),
        (SURGE, {"tenants": ACME}, ["quotas"]),
        (SURGE, {}, []),
        (short(kind="eviction_storm"), {}, ["evict_idle", "hold_hot"]),
        (short(kind="kv_orphan"), {"detail": make_detail(leaks=(AGED,))}, ["reclaim_orphans"]),
        (short(kind="kv_orphan"), {"detail": make_detail(leaks=(YOUNG,)), "pool": make_pool(orphaned=9)}, []),
        (short(kind="kv_orphan"), {"detail": make_detail(leaks=None), "pool": make_pool(orphaned=9)}, []),
        (short(kind="kv_orphan"), {"pool": make_pool(orphaned=9)}, []),
        (DELAYED, {}, ["reclaim_delayed"]),
        (short(kind="kv_delayed_free", evidence={"delayed_blocks": 3.0}), {}, []),
        (IDLE, {}, ["trim"]),
        (HEAVY, {}, ["batch_tokens"]),
        (short(kind="spec_residue", evidence={"stuck_requests": 2.0}), {}, ["end_zombies"]),
        (short(kind="spec_residue", evidence={"residue_blocks": 2.0}), {}, []),
        (short(kind="kv_stall", **PAGE), {}, ["restart"]),
        (short(kind="kv_stall"), {}, []),
        (short(kind="kv_stall", **PAGE), {"detail": SILENT}, ["end_zombies", "restart"]),
        (short(), {"detail": SILENT}, ["watermark", "active_cap", "end_zombies"]),
        (short(), {"detail": make_detail()}, ["watermark", "active_cap"]),
        (short(kind="kv_over_freed", **PAGE), {}, []),
        (short(tier="note"), {}, []),
        (short(phase="suspect"), {}, []),
        (short(held=True), {}, []),
        (short(subject=Subject(scope="engine", engine="quiet")), {}, []),
    ],
)
def test_ladders(verdict: Verdict, engine: dict[str, Any], expected: list[str]) -> None:
    assert names(verdict, **engine) == expected


def test_every_rung_of_the_policy_has_a_rule() -> None:
    assert set(RULES) == set(RUNGS)
    assert all(rule.rung == rung for rung, rule in RULES.items())


def in_force(lever: str, **arguments: Any) -> Action:
    from msgspec.structs import replace

    action = past(lever, phase="in_force")
    return replace(action, plan=replace(action.plan, arguments=arguments))


def test_a_throttle_is_tightened_step_by_step_to_its_floor() -> None:
    first, *_ = ladder(short(), in_force("watermark", blocks=50))
    assert (first.arguments, first.amends != "") == ({"blocks": 100}, True)
    assert names(short(), in_force("watermark", blocks=200)) == ["active_cap"]
    (cap,) = [each for each in ladder(short(), in_force("active_cap", requests=80)) if each.rung == "active_cap"]
    assert cap.arguments == {"requests": 64}
    (cap,) = [each for each in ladder(short(), in_force("active_cap", requests=17)) if each.rung == "active_cap"]
    assert cap.arguments == {"requests": 16}
    assert names(short(), in_force("active_cap", requests=16)) == ["watermark"]


def test_shedding_adds_to_the_rules_in_force_and_ends_with_all_new_work() -> None:
    quotas = {"quotas": {"acme": 10}}
    shed = ladder(short(**PAGE), in_force("admission", **quotas))[-1]
    assert shed.arguments == quotas | {
        "max_prompt": 4096,
        "batch_prompt": 8192,
        "pool_share": 0.9,
        "retry_after": 10,
        "pressure": 30,
    }
    now = in_force("admission", **shed.arguments)
    assert "shed" not in names(short(**PAGE), now)
    bad = (Score(scope="engine", engine="m", gpu="", form="kvtide", value=15.0),)
    last = ladder(short(**PAGE), now, scores=bad)[-1]
    assert last.arguments == shed.arguments | {"shed": True}
    assert "shed" not in names(short(**PAGE), in_force("admission", **last.arguments), scores=bad)


def test_where_no_front_end_can_the_core_enforces() -> None:
    shed = ladder(short(**PAGE), front=False)[-1]
    assert (shed.lever, shed.targets) == ("enforce_admission", ("i1",))
    assert shed.arguments == {"prompt_limit": 4096, "pool_share": 0.9, "retry_after": 10}


def test_quotas_by_the_formula_and_blocks_reserved() -> None:
    chosen = Policy.model_validate(
        {
            "actions": {"mode": "enforce"},
            "admission": {
                "quota_ratio": 0.2,
                "sla_factors": {"acme": 0.5},
                "paid_factors": {"b": 2.0},
                "priority": ["gold", "silver"],
            },
        }
    )
    detail = make_detail(tenants=(make_tenant(tenant="b", quota_blocks=100),))
    (plan,) = [each for each in ladder(SURGE, chosen=chosen, tenants=ACME, detail=detail) if each.rung == "quotas"]
    assert plan.arguments == {"quotas": {"acme": 300, "b": 200}, "reserved": {"gold": 100, "silver": 100}}
    assert plan.subject.tenant == "acme"
    assert plan.targets == ("f1",)


def busy_tenant(running: int = 20, waiting: int = 10, tenant: str = "acme") -> Any:
    return make_detail(tenants=(make_tenant(tenant=tenant, running=running, waiting=waiting),))


def test_a_tenant_that_crowds_others_out_gets_fewer_at_once_step_by_step() -> None:
    (plan,) = ladder(SURGE, detail=busy_tenant())
    assert (plan.rung, plan.lever, plan.targets, plan.subject.tenant) == ("concurrency", "admission", ("f1",), "acme")
    assert plan.arguments == {"concurrency": {"acme": 24}}
    assert plan.expected is not None
    assert (plan.expected.signal, plan.expected.direction) == ("tenant_requests", "down")
    now = in_force("admission", quotas={"acme": 10}, concurrency={"acme": 24, "other": 3})
    (plan,) = ladder(SURGE, now, detail=busy_tenant(20, 4))
    assert plan.arguments == {"quotas": {"acme": 10}, "concurrency": {"acme": 19, "other": 3}}
    (plan,) = ladder(SURGE, in_force("admission", concurrency={"acme": 3}), detail=busy_tenant(3, 0))
    assert plan.arguments == {"concurrency": {"acme": 2}}, "the policy's floor"
    assert names(SURGE, in_force("admission", concurrency={"acme": 2}), detail=busy_tenant(2, 0)) == []


@pytest.mark.parametrize(
    ("verdict", "engine", "chosen"),
    [
        (short(), {"detail": busy_tenant()}, policy()),  # the pool is short, and nobody has surged
        (SURGE, {"detail": busy_tenant(tenant="b")}, policy()),
        (SURGE, {"detail": busy_tenant(2, 0)}, policy()),
        (SURGE, {}, policy()),
        (SURGE, {"detail": busy_tenant()}, Policy.model_validate({"admission": {"priority": ["acme"]}})),
        (SURGE, {"detail": busy_tenant()}, policy(ladder=["quotas"])),
    ],
)
def test_nobody_else_gets_fewer_at_once(verdict: Verdict, engine: dict[str, Any], chosen: Policy) -> None:
    assert "concurrency" not in names(verdict, chosen=chosen, **engine)


def test_what_runs_above_a_limit_goes_on_before_it_is_lowered_again() -> None:
    assert names(SURGE, in_force("admission", concurrency={"acme": 10}), detail=busy_tenant(20, 0)) == []


def test_the_core_has_it_where_no_front_end_can() -> None:
    (plan,) = ladder(SURGE, front=False, detail=busy_tenant())
    assert (plan.lever, plan.arguments) == ("enforce_admission", {"concurrency": {"acme": 24}})


def test_a_tenants_limit_is_raised_step_by_step_and_taken_off_when_it_holds_nobody_back() -> None:
    def after(has: int, **rules: Any) -> Any:
        detail = make_detail(tenants=(make_tenant(tenant="acme", running=has, waiting=0),))
        return milder(in_force("admission", **rules), state(detail=detail), policy())

    assert after(8, concurrency={"acme": 8}) == {"concurrency": {"acme": 10}}
    assert after(1, concurrency={"acme": 1}) == {"concurrency": {"acme": 2}}
    assert after(8, concurrency={"acme": 10}) is None, "as many again as it has: the last rule ends the action"
    assert after(8, concurrency={"acme": 10}, quotas={"acme": 9}) == {"quotas": {"acme": 9}}
    assert after(8, concurrency={"acme": 8, "gone": 2}) == {"concurrency": {"acme": 10}}
    shed = after(8, concurrency={"acme": 8}, shed=True)
    assert shed == {"concurrency": {"acme": 8}, "short_first": True}, "what is shed is let in first"


def test_preempting_comes_after_a_throttle_and_caps_itself() -> None:
    assert "preempt" not in names(short(**PAGE))
    plan = ladder(short(**PAGE), in_force("active_cap", requests=16))[-1]
    assert (plan.rung, plan.arguments) == ("preempt", {"requests": 10, "cap": True, "priority": {}})
    assert "preempt" not in names(short(), in_force("active_cap", requests=16))


def test_what_did_not_help_is_not_tried_again_while_the_verdict_stands() -> None:
    memory = Memory()
    found = state(short())
    assert found.judgement is not None
    memory.take(found.judgement, 0.0)
    memory.did_not_help("kv_pressure", "m", "watermark")
    assert names(short(), memory=memory) == ["active_cap"]
    memory.take(Judgement(at=0.0), 2.0)
    assert names(short(), memory=memory) == ["watermark", "active_cap"]


def test_the_policy_orders_the_ladder_and_leaves_out() -> None:
    chosen = policy(ladder=["active_cap", "watermark"])
    assert names(short(**PAGE), chosen=chosen) == ["active_cap", "watermark"]


def test_what_somebody_is_woken_for_comes_first() -> None:
    found = state(short(kind="eviction_storm"), short(**PAGE))
    assert found.judgement is not None
    memory = Memory()
    memory.take(found.judgement, 0.0)
    first, second = plans(found.judgement, found, policy(), memory, ())
    assert (first[0].kind, second[0].kind) == ("kv_pressure", "eviction_storm")


def test_looks_that_come_sooner_are_no_further_breach() -> None:
    memory = Memory()
    judgement = Judgement(at=0.0, verdicts=(short(),))
    for number in range(11):
        memory.take(judgement, 0.2 * number)
    assert memory.breaches("kv_pressure", "m") == 3
    memory.take(Judgement(at=0.0), 3.0)
    assert memory.breaches("kv_pressure", "m") == 0


def test_engines_that_come_and_go_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.actions.memory.MOST_ENGINES", 3)
    memory = Memory()
    for number in range(10):
        subject = Subject(scope="engine", engine=f"e{number}")
        memory.take(Judgement(at=0.0, verdicts=(short(subject=subject),)), float(number))
    assert list(memory._disturbed) == ["e7", "e8", "e9"]
    assert (memory.calm_seconds("e9", 12.0), memory.calm_seconds("e7", 12.0)) == (3.0, 5.0)


def test_what_leaks_after_a_reclaim_is_no_fault_of_it() -> None:
    subject = Subject(scope="engine", engine="m")

    def aged(since: float, *leaks: LeakRow) -> float | None:
        return measured("orphaned_aged_blocks", state(detail=make_detail(leaks=leaks)), subject, since)

    assert aged(0.0, make_leak(blocks=40, age_seconds=20.0), make_leak(blocks=8, age_seconds=5.0)) == 40
    # Twenty seconds later those 40 are gone, and 50 have come since.
    assert aged(20.0, make_leak(blocks=8, age_seconds=25.0), make_leak(blocks=50, age_seconds=19.0)) == 0
    assert aged(20.0, make_leak(blocks=40, age_seconds=40.0)) == 40
    assert measured("orphaned_aged_blocks", state(), subject) is None
