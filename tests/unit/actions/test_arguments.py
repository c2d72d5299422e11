"""What rules ask of levers is what the engine's levers take: both sides' words are compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.actions.types import Plan
from agent.actions.watching import milder
from engine_hooks.core.levers import enforce_admission
from engine_hooks.frontend.admission.rules import rules_of
from tests.unit.actions.rig import policy, short
from tests.unit.actions.test_planner import ACME, AGED, DELAYED, HEAVY, IDLE, PAGE, in_force, ladder, state
from tests.unit.details import make_detail

LEVERS = Path(__file__).parents[3] / "engine_hooks" / "core" / "levers"


def all_plans() -> dict[str, Plan]:
    """One plan of each rung that pulls a lever of an engine core."""
    found = [
        *ladder(short(), tenants=ACME),
        *ladder(short(**PAGE), in_force("active_cap", requests=16)),
        *ladder(short(kind="eviction_storm")),
        *ladder(short(kind="kv_orphan"), detail=make_detail(leaks=(AGED,))),
        *ladder(DELAYED),
        *ladder(IDLE),
        *ladder(HEAVY),
        *ladder(short(kind="spec_residue", evidence={"stuck_requests": 2.0})),
    ]
    return {plan.lever: plan for plan in found if plan.lever != "admission"}


@pytest.mark.parametrize("lever", sorted(all_plans()))
def test_a_core_lever_knows_each_argument(lever: str) -> None:
    source = (LEVERS / f"{lever}.py").read_text()
    (known,) = re.findall(r"only\(arguments, ([^)]*)\)", source)
    assert set(all_plans()[lever].arguments) <= set(re.findall(r'"(\w+)"', known))


def test_every_core_rung_is_compared() -> None:
    assert set(all_plans()) == {
        "watermark",
        "active_cap",
        "batch_tokens",
        "evict_idle",
        "hold_hot",
        "reclaim_orphans",
        "reclaim_delayed",
        "trim",
        "end_zombies",
        "preempt",
    }


def test_the_rules_of_admission_are_rules_there_at_each_step_back() -> None:
    chosen = policy()
    quotas = ladder(short(**PAGE), tenants=ACME)[0]
    shed = ladder(short(**PAGE), in_force("admission", **quotas.arguments))[-1]
    steps = [shed.arguments | {"shed": True}]
    while (next_ := milder(in_force("admission", **steps[-1]), state(short()), chosen)) is not None:
        steps.append(next_)
    for step in steps:
        rules_of(step)
    assert [sorted(step) for step in steps] == [
        ["batch_prompt", "max_prompt", "pool_share", "pressure", "quotas", "retry_after", "shed"],
        ["batch_prompt", "max_prompt", "pool_share", "pressure", "quotas", "retry_after", "short_first"],
        ["batch_prompt", "max_prompt", "pool_share", "pressure", "retry_after", "short_first"],
    ]


def test_what_the_core_is_asked_it_can_enforce() -> None:
    plan = ladder(short(**PAGE), tenants=ACME, front=False)[0]
    assert set(plan.arguments) <= enforce_admission.ENFORCED
    shed = ladder(short(**PAGE), front=False)[-1]
    assert set(shed.arguments) <= enforce_admission.ENFORCED
    rules_of(shed.arguments | {"shed": True})
