"""What costs somebody their work: running requests are put back, the engine is restarted. Two evidences each."""

from __future__ import annotations

from agent.actions.rules.base import Case, priority_of
from agent.actions.types import Plan
from agent.policy.actions import Rung

PREEMPTED_SHARE = 0.1  # of what runs, at once
THROTTLES = ("active_cap", "watermark")


class Preempt:
    """The newest requests of tenants without priority are put back, once fewer are let in: else they are right back."""

    rung: Rung = "preempt"
    kinds = frozenset({"kv_pressure", "preemption_thrash"})

    def plan(self, case: Case) -> Plan | None:
        """Return the plan; None before admission is throttled, or where few run."""
        running = case.engine.running or 0
        if case.verdict.tier != "page" or running < 2 or not any(each in case.in_force for each in THROTTLES):
            return None
        arguments = {
            "requests": max(1, int(PREEMPTED_SHARE * running)),
            "cap": True,
            "priority": priority_of(case),
        }
        undo = "The cap that keeps them out is taken off."
        return case.plan("preempt", "preempt", arguments, expected=case.expect("use_ratio", "down", 0.01), undo=undo)


class Restart:
    """Nothing inside a stalled engine gets it going: its supervisor restarts it, drained."""

    rung: Rung = "restart"
    kinds = frozenset({"kv_stall"})

    def plan(self, case: Case) -> Plan | None:
        """Return the plan; None where it may yet end by itself."""
        if case.verdict.tier != "page":
            return None
        stalled = case.verdict.evidence.get("stalled_seconds")
        expected = None if not stalled else case.expect("stalled_seconds", "down", 0.5 * stalled)
        return case.plan("restart", "restart", {}, expected=expected, undo="Nothing to take back.")
