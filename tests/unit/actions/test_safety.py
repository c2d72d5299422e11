"""Each gate refuses what it is there for, and lets through what is right; all of it on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace as with_

from agent.actions.executor import new_action
from agent.actions.gates.pace import budget_left
from agent.actions.gates.question import Question
from agent.actions.safety import FOR_PERSONS, GATES, refusal_of
from agent.actions.types import REFUSALS, Action, BreakerState, Plan
from agent.actions.vetoes import Veto
from agent.balancer.state import BalancerState, EngineWeight, Weight
from agent.policy.types import Policy
from agent.signals.types import GpuSignals, NodeSignals
from agent.state import AgentState, Judgement, Verdict
from agent.subject import Subject
from engine_hooks.detail import WaitingRow
from engine_hooks.levers.orders import LeverRow
from tests.unit.actions.rig import policy, short
from tests.unit.builders import make_engine, make_pool, make_state, make_worker
from tests.unit.details import make_detail
from tests.unit.node_builders import make_waterfall

NOW = 1_700_001_000.0
ALL = ("watermark", "active_cap", "reclaim_orphans", "preempt", "trim", "compact", "restart", "reclaim_delayed")


def plan(lever: str = "watermark", **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "lever": lever,
        "subject": Subject(scope="engine", engine="m"),
        "targets": ("i1",),
        "arguments": {},
        "kind": "kv_pressure",
        "sentence": "short",
        "evidence": {},
        "expected": None,
        "undo": "",
        "lease_seconds": 30.0,
        "state_at": NOW,
        "monotonic": 50_000.0,
    }
    return Plan(**values | changes)


def past(lever: str = "watermark", ago: float = 10.0, **changes: Any) -> Action:
    action = new_action(plan(lever), "enforce", NOW - ago, None)
    return with_(action, **{"phase": "undone", "verified": "helped"} | changes)


def state(*verdicts: Verdict, signals: NodeSignals | None = None, engine: dict[str, Any] | None = None) -> AgentState:
    values: dict[str, Any] = {
        "levers": tuple(LeverRow(lever=name, ok=True) for name in ALL),
        "verdicts": (),
        "detail": None,
    }
    return make_state(
        make_engine(**values | (engine or {})),
        judgement=Judgement(at=NOW, signals=signals or NodeSignals(), verdicts=verdicts),
    )


def question(**changes: Any) -> Question:
    values: dict[str, Any] = {
        "plan": plan(),
        "policy": policy(),
        "state": state(short()),
        "now": NOW,
        "monotonic": 50_000.5,
        "minute": 12 * 60,
        "recent": (),
        "breaches": 3,
    }
    return Question(**values | changes)


def night(**actions: Any) -> Policy:
    return policy(off_peak=["22:00-06:00"], **actions)


PAUSED = make_detail(waiting=WaitingRow(reasons={}, idle_steps=3, stalled_seconds=None, stalled_by="paused"))
HELD = BalancerState(
    engines=(
        EngineWeight(
            engine="m", told=Weight(percent=0, mode="drain", since=0.0, step="person"), found=Weight(since=0.0)
        ),
    )
)
FOREIGN = NodeSignals(gpus=(GpuSignals(gpu="0", foreign_bytes=8 << 30),))
OURS = NodeSignals(gpus=(GpuSignals(gpu="0", foreign_bytes=0),))
WORKER = {"members": (make_worker(worker=with_(make_worker().worker, device_uuid=make_waterfall().uuid)),)}
STALL = short(kind="kv_stall", tier="page")
REASON = "KVTIDE_LEVERS in the engine's environment does not list watermark"
FORBIDDEN = {"levers": (LeverRow(lever="watermark", ok=False, reason=REASON),)}


def restart(*recent: Action, own: str = "") -> Question:
    """Whether a stalled engine whose pool is short may be restarted; ``own``: why its supervisor can't."""
    chosen = policy(opt_in=["restart"], restarts_per_hour=2)
    return question(plan=plan("restart"), policy=chosen, state=state(STALL, short()), recent=recent, own=own)


# What is asked; the code that it must be refused with, or nothing. Each refusal has a twin that passes.
CASES: dict[str, tuple[Callable[[], Question], str]] = {
    "right": (question, ""),
    "observe": (lambda: question(policy=policy(mode="observe")), "observe"),
    "observe on this engine": (lambda: question(policy=policy(engines={"m": {"watermark": "observe"}})), "observe"),
    "observe on another": (lambda: question(policy=policy(engines={"n": {"watermark": "observe"}})), ""),
    "only this lever": (lambda: question(policy=policy(mode="observe", levers={"watermark": "enforce"})), ""),
    "no opt-in": (lambda: question(plan=plan("reclaim_delayed")), "observe"),
    "opt-in": (lambda: question(plan=plan("reclaim_delayed"), policy=policy(opt_in=["reclaim_delayed"])), ""),
    "off": (lambda: question(off="the node's off switch"), "switched_off"),
    "journal": (lambda: question(journal="disk full"), "journal"),
    "breaker": (lambda: question(breaker=BreakerState(open=True, reason="x")), "breaker"),
    "breaker counts": (lambda: question(breaker=BreakerState(failures=2)), ""),
    "old picture": (lambda: question(monotonic=50_006.0), "stale"),
    "old report": (lambda: question(state=state(engine={"report_age_seconds": 4.8})), "stale"),
    "fresh report": (lambda: question(state=state(engine={"report_age_seconds": 4.0})), ""),
    "silent": (lambda: question(state=state(engine={"phase": "silent"})), "stale"),
    "no engine": (lambda: question(plan=plan(subject=Subject(scope="engine", engine="x"))), "stale"),
    "maintenance": (lambda: question(policy=policy(maintenance=["11:00-13:00"])), "window"),
    "after maintenance": (lambda: question(policy=policy(maintenance=["11:00-12:00"])), ""),
    "heavy by day": (lambda: question(plan=plan("trim"), policy=night()), "window"),
    "heavy at night": (lambda: question(plan=plan("trim"), policy=night(), minute=5 * 60), ""),
    "light by day": (lambda: question(policy=night()), ""),
    "drained": (lambda: question(yields={"m": "drained"}), "yield"),
    "all drained": (lambda: question(yields={"": "rolled out"}), "yield"),
    "another drained": (lambda: question(yields={"n": "drained"}), ""),
    "paused": (lambda: question(state=state(engine={"detail": PAUSED})), "yield"),
    "held at the balancer": (lambda: question(state=with_(state(), balancer=HELD)), "yield"),
    "fleet": (lambda: question(fleet={"kv_pressure": 0.21}), "fleet"),
    "fleet, few": (lambda: question(fleet={"kv_pressure": 0.20}), ""),
    "fleet, another verdict": (lambda: question(fleet={"kv_orphan": 0.9}), ""),
    "no word of the fleet": (lambda: question(policy=policy(fleet_file="/x")), "fleet"),
    "too few looks": (lambda: question(policy=policy(breaches=4)), "hysteresis"),
    "being done": (lambda: question(recent=(past("active_cap", phase="sent"),)), "busy"),
    "being measured": (lambda: question(recent=(past("active_cap", phase="in_force", verified="not_yet"),)), "busy"),
    "done, being measured": (lambda: question(recent=(past("trim", phase="done", verified="not_yet"),)), "busy"),
    "measured": (lambda: question(recent=(past("active_cap", phase="in_force"),)), ""),
    "a cure while a throttle is measured": (
        lambda: question(
            plan=plan("reclaim_orphans"), recent=(past("active_cap", phase="in_force", verified="not_yet"),)
        ),
        "",
    ),
    "a cure while a throttle is pulled": (
        lambda: question(plan=plan("reclaim_orphans"), recent=(past("active_cap", phase="sent"),)),
        "busy",
    ),
    "a cure while what it has done is measured": (
        lambda: question(
            plan=plan("reclaim_orphans"), recent=(past("reclaim_orphans", ago=100.0, phase="done", verified="not_yet"),)
        ),
        "busy",
    ),
    "a throttle while a cure is measured": (
        lambda: question(recent=(past("reclaim_orphans", phase="done", verified="not_yet"),)),
        "busy",
    ),
    "held by another": (lambda: question(recent=(past(ago=100.0, phase="in_force"),)), "busy"),
    "cooldown": (lambda: question(recent=(past(ago=59.0),)), "cooldown"),
    "cooldown over": (lambda: question(recent=(past(ago=60.0),)), ""),
    "cooldown of another lever": (lambda: question(recent=(past("active_cap", ago=5.0),)), ""),
    "a clock set back": (lambda: question(recent=(past(ago=-500.0),)), "cooldown"),
    "a person's does not count": (lambda: question(recent=(past(ago=5.0, by="ann"),)), ""),
    "budget": (lambda: question(recent=tuple(past("trim", ago=100.0 + n) for n in range(12))), "budget"),
    "weights are of no budget": (lambda: question(recent=tuple(past("weight", ago=100.0 + n) for n in range(40))), ""),
    "restarted too often": (lambda: restart(*(past("restart", ago=600.0 * n) for n in (1, 2))), "budget"),
    "restarted once": (lambda: restart(past("restart", ago=600.0), past("restart", ago=4000.0)), ""),
    "nobody restarts it": (lambda: restart(own="nobody is named"), "unsupported"),
    "budget left": (lambda: question(recent=tuple(past("trim", ago=100.0 + n) for n in range(11))), ""),
    "an hour ago": (lambda: question(recent=tuple(past("trim", ago=3600.0 + n) for n in range(12))), ""),
    "dry runs cost nothing": (
        lambda: question(recent=tuple(past("trim", ago=100.0 + n, mode="dry-run") for n in range(12))),
        "",
    ),
    "a new budget": (
        lambda: question(recent=tuple(past("trim", ago=100.0 + n) for n in range(12)), budget_since=NOW - 50),
        "",
    ),
    "one evidence": (lambda: question(plan=plan("preempt"), state=state(short())), "evidence"),
    "two of one family": (
        lambda: question(plan=plan("preempt"), state=state(short(kind="kv_orphan"), short(kind="kv_over_freed"))),
        "evidence",
    ),
    "two evidences": (
        lambda: question(plan=plan("preempt"), state=state(short(), short(kind="preemption_thrash"))),
        "",
    ),
    "the second is only suspected": (
        lambda: question(plan=plan("preempt"), state=state(short(), short(kind="kv_stall", phase="suspect"))),
        "evidence",
    ),
    "the second is elsewhere": (
        lambda: question(
            plan=plan("preempt"),
            state=state(short(), short(kind="kv_stall", subject=Subject(scope="engine", engine="n"))),
        ),
        "evidence",
    ),
    "restart, stall alone": (
        lambda: question(plan=plan("restart"), policy=policy(opt_in=["restart"]), state=state(STALL)),
        "evidence",
    ),
    "neighbours": (lambda: question(state=state(signals=FOREIGN, engine=WORKER)), "shared_gpu"),
    "neighbours are known": (
        lambda: question(policy=policy(shared_gpu=True), state=state(signals=FOREIGN, engine=WORKER)),
        "",
    ),
    "alone": (lambda: question(state=state(signals=OURS, engine=WORKER)), ""),
    "what gives neighbours memory": (
        lambda: question(
            plan=plan("compact"), policy=policy(opt_in=["compact"]), state=state(signals=FOREIGN, engine=WORKER)
        ),
        "",
    ),
    "compacting without its opt-in": (lambda: question(plan=plan("compact")), "observe"),
    "no target": (lambda: question(plan=plan(targets=())), "unsupported"),
    "another's successor": (lambda: question(plan=plan(targets=("i0",))), "unsupported"),
    "no such lever": (lambda: question(plan=plan("hold_hot")), "unsupported"),
    "not allowed": (lambda: question(state=state(engine=FORBIDDEN)), "unsupported"),
    "not allowed, only tried": (lambda: question(policy=policy(mode="dry-run"), state=state(engine=FORBIDDEN)), ""),
    "not exact": (
        lambda: question(plan=plan("reclaim_orphans"), state=state(engine={"pool": make_pool(exact=False)})),
        "exact",
    ),
    "no audit": (
        lambda: question(plan=plan("reclaim_orphans"), state=state(engine={"audit_supported": False})),
        "exact",
    ),
    "exact": (lambda: question(plan=plan("reclaim_orphans")), ""),
    "vetoed": (lambda: question(vetoes=(Veto(lever="watermark", engine="m", until=NOW + 60),)), "vetoed"),
    "all vetoed": (lambda: question(vetoes=(Veto(lever="*", engine="*", until=NOW + 60),)), "vetoed"),
    "veto over": (lambda: question(vetoes=(Veto(lever="*", engine="*", until=NOW),)), ""),
    "another vetoed": (lambda: question(vetoes=(Veto(lever="trim", engine="*", until=NOW + 60),)), ""),
}


@pytest.mark.parametrize("name", CASES)
def test_gates(name: str) -> None:
    asked, code = CASES[name]
    refusal = refusal_of(asked())
    assert (refusal.code if refusal else "") == code, refusal
    assert refusal is None or (refusal.code in REFUSALS and refusal.text)


def test_each_code_has_a_case() -> None:
    of_weights_alone = {"share"}
    assert {code for _, code in CASES.values()} == {*REFUSALS, ""} - of_weights_alone


PERSONAL = {
    "off": "switched_off",
    "journal": "journal",
    "old picture": "stale",
    "being done": "busy",
    "a cure while a throttle is pulled": "busy",
    "nobody restarts it": "unsupported",
    "held by another": "busy",
    "no target": "unsupported",
    "not allowed": "unsupported",
    "not exact": "exact",
}


@pytest.mark.parametrize("name", CASES)
def test_a_person_is_kept_only_from_what_harms(name: str) -> None:
    asked, _ = CASES[name]
    found = asked()
    refusal = refusal_of(Question(**{each: getattr(found, each) for each in found.__slots__} | {"by_person": True}))
    special = {"old report", "silent", "no engine", "another's successor", "no such lever", "no audit"}
    if name in PERSONAL or name in special or name == "not allowed, only tried":
        assert refusal is not None
    else:
        assert refusal is None, refusal


@pytest.mark.parametrize("lever", ["trim", "compact", "reset_prefix", "sleep", "restart"])
def test_compaction_and_other_heavy_levers_wait_for_off_peak_times(lever: str) -> None:
    chosen = night(opt_in=["compact", "sleep", "restart"])
    by_day = refusal_of(question(plan=plan(lever), policy=chosen))
    assert by_day is not None
    assert by_day.code == "window"
    at_night = refusal_of(question(plan=plan(lever), policy=chosen, minute=23 * 60))
    assert at_night is None or at_night.code != "window"


def test_the_order_of_gates_is_fixed() -> None:
    """What is wrong in several ways is told the first of them; the budget is last, for it opens the breaker."""
    names = [gate.__name__ for gate in GATES]
    assert names[0] == "mode"
    assert names[-1] == "budget"
    only = {"opt_in"}  # for the agent's own plans that of the mode's gate
    assert {gate.__name__ for gate in FOR_PERSONS} - only < {*names}


def test_a_breaker_that_was_closed_by_a_clock_that_was_ahead_leaves_the_budget() -> None:
    """A day later, by that clock: until then nothing would count."""
    done = [new_action(plan(), "enforce", NOW - 60.0, None)]
    assert budget_left(done, policy(budget_per_hour=1), NOW, NOW - 30.0) == 1
    assert budget_left(done, policy(budget_per_hour=1), NOW, NOW + 86_400.0) == 0
