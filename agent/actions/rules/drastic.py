"""What costs somebody their work: running requests are put back, the engine is restarted. Two evidences each."""

from __future__ import annotations

from agent.actions.rules.base import Case, priority_of
from agent.actions.types import Plan
from agent.policy.actions import SILENT_RUNG, Rung

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


class RestartSilent:
    """An engine that says nothing for very long, though its process lives: nobody can be asked any more, so its
    supervisor restarts it. Other levers find it stale.
    """

    rung: Rung = SILENT_RUNG
    kinds = frozenset({"engine_missing"})
    of_silent = True

    def plan(self, case: Case) -> Plan | None:
        """Return the plan; None where it has not been silent for so long, or it is not that which is missing."""
        silent = case.verdict.evidence.get("silent_seconds", 0.0)
        if case.engine.phase != "silent" or silent < case.policy.actions.silent_seconds:
            return None
        return case.plan(SILENT_RUNG, "restart", {}, expected=None, undo="Nothing to take back.")
