"""Admission: who is let in, and who is turned away, by the API servers (or by the core where they are not Python)."""

from __future__ import annotations

from agent.actions.measure import measured
from agent.actions.processes import targets_of
from agent.actions.rules.base import Case
from agent.actions.types import Plan
from agent.policy.actions import Rung
from agent.subject import Subject
from engine_hooks.levers.orders import Argument

FRONT, CORE = "admission", "enforce_admission"
UNDO = "The rules are taken off one after the other; meanwhile short requests come first."
SURGE = "tenant_surge"
CONCURRENCY = "concurrency"
MOST_TENANTS = 128  # those with the largest shares: others are far from any quota


def lever_of(case: Case) -> str:
    """Return who enforces rules of admission on this engine: its API servers where they can."""
    if targets_of(case.state, case.engine, FRONT) or not targets_of(case.state, case.engine, CORE):
        return FRONT
    return CORE


def rules_now(case: Case) -> dict[str, Argument]:
    """Return the rules that are in force, to which others are added: a lever has one lease."""
    held = case.in_force.get(lever_of(case))
    return dict(held.plan.arguments) if held is not None else {}


class Quotas:
    """Blocks by tenant, where one crowds the others out, or is past what it may hold while the pool is short."""

    rung: Rung = "quotas"
    kinds = frozenset({SURGE, "kv_pressure", "preemption_thrash"})

    def plan(self, case: Case) -> Plan | None:
        """Return the quotas; None where none would bind, or they are in force."""
        capacity, lever, now = case.capacity, lever_of(case), rules_now(case)
        if not capacity or "quotas" in now:
            return None
        largest = sorted(case.tenants, key=lambda each: -(each.share_ratio or 0.0))[:MOST_TENANTS]
        quotas: dict[str, int | float] = {each.tenant: _quota(case, each.tenant) for each in largest}
        over = [each for each in largest if (each.share_ratio or 0.0) * capacity > quotas[each.tenant]]
        if not over:
            return None
        rules: dict[str, Argument] = {"quotas": quotas}
        if lever == FRONT and (reserved := case.policy.admission.reserved_of(capacity)):
            rules["reserved"] = reserved
        worst = over[0]
        about = Subject(scope="tenant", engine=case.engine.engine, tenant=worst.tenant)
        expected = case.expect("tenant_share_ratio", "down", 0.05 * (worst.share_ratio or 0.0), 60.0)
        return case.plan("quotas", lever, now | rules, expected=expected, undo=UNDO, subject=about)


class Concurrency:
    """Requests at once of the tenant that crowds others out, by a fifth fewer with each step. Others feel nothing."""

    rung: Rung = "concurrency"
    kinds = frozenset({SURGE})

    def plan(self, case: Case) -> Plan | None:
        """Return the next step down; None where the tenant's numbers are not known, it is a priority tenant, or has as
        few as the policy always leaves.
        """
        name, now = case.verdict.subject.tenant, rules_now(case)
        table = now.get(CONCURRENCY)
        limits: dict[str, int | float] = dict(table) if isinstance(table, dict) else {}
        rows = case.engine.detail.tenants if case.engine.detail is not None else None
        row = next((each for each in rows or () if each.tenant == name), None)
        if row is None or name in case.policy.admission.priority:
            return None
        has, floor = row.running + row.waiting, case.policy.admission.concurrency_floor
        before = limits.get(name, has)
        if before <= floor or has <= floor or has > before:  # what runs above a limit goes on to its end
            return None
        limits[name] = max(floor, int(case.policy.actions.step_factor * min(before, has)))
        about = Subject(scope="tenant", engine=case.engine.engine, tenant=name)
        expected = case.expect("tenant_requests", "down", 1.0, 60.0)
        return case.plan(
            "concurrency", lever_of(case), now | {CONCURRENCY: limits}, expected=expected, undo=UNDO, subject=about
        )


class Shed:
    """Over-long prompts and requests that would have the pool for themselves are turned away, then all new work: only
    where somebody would be woken for it.
    """

    rung: Rung = "shed"
    kinds = frozenset({"kv_pressure", "preemption_thrash"})

    def plan(self, case: Case) -> Plan | None:
        """Return the next step; None where all that is new is turned away already."""
        admission, lever, now = case.policy.admission, lever_of(case), rules_now(case)
        if case.verdict.tier != "page" or now.get("shed"):
            return None
        long = "max_prompt" if lever == FRONT else "prompt_limit"
        rules: dict[str, Argument] = {
            long: admission.over_long_tokens,
            "pool_share": admission.request_share_ratio,
            "retry_after": admission.retry_after_seconds,
        }
        if lever == FRONT:
            rules["batch_prompt"] = admission.batch_path_tokens
            if (use := measured("use_ratio", case.state, case.subject)) is not None:
                rules["pressure"] = round(100 * min(1.0, use))  # for the ladder of models, where there is one
        if long in now:
            if not _emergency(case):
                return None
            rules["shed"] = True
        return case.plan("shed", lever, now | rules, expected=case.relief(0.01), undo=UNDO)


def _quota(case: Case, tenant: str) -> int:
    """Return what a tenant may hold; where the tenant map says so, that is its base."""
    rows = case.engine.detail.tenants if case.engine.detail is not None else None
    mapped = next((row.quota_blocks for row in rows or () if row.tenant == tenant), None)
    return case.policy.admission.quota_of(tenant, case.capacity, mapped)


def _emergency(case: Case) -> bool:
    """Whether the engine's score is in the lowest tier."""
    scores = case.state.judgement.scores if case.state.judgement else ()
    own = [each.value for each in scores if each.engine == case.engine.engine and each.form == "kvtide"]
    return bool(own) and min(own) < case.policy.score.emergency_below
