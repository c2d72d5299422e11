"""Whether this lever may be pulled here: the engine has it, nobody forbids it, and what it takes is sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.actions.gates.question import Question, refuse
from agent.actions.processes import Process, all_processes
from agent.actions.sharing import neighbours
from agent.actions.types import Refusal
from agent.actions.vetoes import vetoed
from agent.policy.actions import SILENT_RUNG
from agent.state import AgentState, Verdict
from agent.units import human_seconds

NOT_LISTED = "KVTIDE_LEVERS"  # what the reason of a lever names that is there and not allowed
TWO_EVIDENCES = frozenset({"preempt", "restart"})
MISSING = "engine_missing"
EXACT = frozenset({"reclaim_orphans"})
GIVING = frozenset({"compact"})  # neighbours get memory, and lose none
# Verdicts by what they are drawn from: two of one family are one piece of evidence.
FAMILIES: Mapping[str, str] = {
    "kv_pressure": "pool",
    "kv_orphan": "accounts",
    "kv_over_freed": "accounts",
    "preemption_thrash": "preemptions",
    "eviction_storm": "evictions",
    "kv_stall": "progress",
    "kv_delayed_free": "connector",
    "kv_pinned": "connector",
    "tenant_surge": "tenants",
    "oom": "failures",
    "allocator_fragmentation": "allocator",
    "allocator_growth": "allocator",
    "device_growth": "device",
    "over_budget": "device",
    "host_growth": "host",
    "gpu_lost": "driver",
    "rank_imbalance": "ranks",
}


def unsupported(question: Question) -> Refusal | None:
    """Each process says what it has, and what it may."""
    plan, known = question.plan, all_processes(question.state)
    if question.own is not None:
        return refuse("unsupported", question.own) if question.own else None
    if not plan.targets:
        engine = question.engine
        said = (row.reason for row in (engine.levers if engine is not None else ()) if row.lever == plan.lever)
        why = next(said, "") or f"no process of {plan.subject.engine} has the lever {plan.lever}"
        return refuse("unsupported", why)
    for target in plan.targets:
        process = known.get(target)
        if process is None or not process.up:
            return refuse("unsupported", f"process {target[:12]} is not there")
        why = _why_not(process, plan.lever, tried=question.mode == "dry-run")
        if why:
            return refuse("unsupported", f"{process.role} {process.rank}: {why}")
    return None


def _why_not(process: Process, lever: str, *, tried: bool) -> str:
    row = process.row(lever)
    if row is None:
        return f"it has no lever {lever}"
    if row.ok or (tried and NOT_LISTED in row.reason):
        return ""
    return row.reason


def evidence(question: Question) -> Refusal | None:
    """What costs somebody their work needs two pieces of evidence."""
    if question.plan.lever not in TWO_EVIDENCES:
        return None
    found = families(question.state, question.plan.subject.engine, silent=question.plan.rung == SILENT_RUNG)
    if len(found) >= 2:
        return None
    only = f"only {next(iter(found))}" if found else "nothing"
    return refuse(
        "evidence", f"{question.plan.lever} needs two pieces of evidence that do not depend on each other: {only}"
    )


def families(state: AgentState, engine: str, *, silent: bool = False) -> frozenset[str]:
    """Return from what the verdicts on an engine that are confirmed are drawn.

    ``silent``: that it says nothing is a piece of evidence, and what was wrong when it fell silent is another.
    """
    verdicts: Sequence[Verdict] = state.judgement.verdicts if state.judgement else ()
    known = {**FAMILIES, MISSING: "silence"} if silent else FAMILIES
    return frozenset(
        known[each.kind]
        for each in verdicts
        if each.phase == "confirmed"
        and each.kind in known
        and each.subject.engine == engine
        and (silent or not each.held)
    )


def shared_gpu(question: Question) -> Refusal | None:
    """Neighbours on the GPU are not ours to hit."""
    if question.policy.actions.shared_gpu or question.engine is None or question.plan.lever in GIVING:
        return None
    found = neighbours(question.state, question.engine)
    return refuse("shared_gpu", f"{found} (actions.shared_gpu)") if found else None


def exact(question: Question) -> Refusal | None:
    """Some levers need accounts that are exact now."""
    if question.plan.lever not in EXACT:
        return None
    engine = question.engine
    if engine is None or engine.pool is None or not engine.audit_supported or not engine.pool.exact:
        return refuse("exact", "its blocks are not accounted for exactly now")
    return None


def veto(question: Question) -> Refusal | None:
    """A person has said no."""
    veto = vetoed(question.vetoes, question.plan.lever, question.plan.subject.engine, question.now)
    if veto is None:
        return None
    return refuse("vetoed", f"by {veto.by}, for {human_seconds(veto.until - question.now)} more")
