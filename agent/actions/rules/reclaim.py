"""What nobody needs any more is given back: leaked blocks, expired delayed frees, idle segments, stuck requests."""

from __future__ import annotations

from agent.actions.measure import measured, orphaned_aged
from agent.actions.rules.base import Case
from agent.actions.types import Plan
from agent.policy.actions import Rung

AUDITED_SECONDS = 5.0  # a block must have been known as leaked for so long; it leaked some seconds before
SILENT_SECONDS = 30.0  # a decoding request without a token for so long is a zombie
TRIM_BYTES = 64 << 20  # less is not worth a step's pause
NOTHING = "Nothing to take back."


class ReclaimOrphans:
    """Leaked blocks go back to the pool, where two exact audits have named them."""

    rung: Rung = "reclaim_orphans"
    kinds = frozenset({"kv_orphan"})

    def plan(self, case: Case) -> Plan | None:
        """Return the plan; None where leaked blocks are only counted or inferred, or none has been so for long."""
        aged = orphaned_aged(case.engine)
        if not aged:
            return None
        expected = case.expect("orphaned_aged_blocks", "down", max(1.0, 0.5 * aged))
        arguments = {"age_seconds": AUDITED_SECONDS}
        return case.plan("reclaim_orphans", "reclaim_orphans", arguments, expected=expected, undo=NOTHING)


class ReclaimDelayed:
    """Delayed frees past their lease are ended: a peer that still writes would corrupt, so only where it is allowed."""

    rung: Rung = "reclaim_delayed"
    kinds = frozenset({"kv_delayed_free"})

    def plan(self, case: Case) -> Plan | None:
        """Return the plan; None where nothing is past its lease."""
        late = case.verdict.evidence.get("late_blocks")
        if not late:
            return None
        expected = case.expect("late_blocks", "down", max(1.0, 0.5 * late))
        return case.plan("reclaim_delayed", "reclaim_delayed", {}, expected=expected, undo=NOTHING)


class Trim:
    """torch's idle segments go back to the driver; the engine refuses where it has counted on them."""

    rung: Rung = "trim"
    kinds = frozenset({"allocator_fragmentation"})

    def plan(self, case: Case) -> Plan | None:
        """Return the plan; None where too little is free as a whole."""
        whole = case.verdict.evidence.get("whole_free_bytes", 0.0)
        if whole < TRIM_BYTES:
            return None
        expected = case.expect("allocator_slack_bytes", "down", 0.5 * whole)
        undo = "Nothing to take back: torch reserves again what it needs."
        return case.plan("trim", "trim", {"bytes": TRIM_BYTES}, expected=expected, undo=undo)


class EndZombies:
    """Requests that decode and get no token are ended, with an answer to their clients."""

    rung: Rung = "end_zombies"
    kinds = frozenset({"spec_residue", "kv_stall", "kv_pressure", "preemption_thrash"})

    def plan(self, case: Case) -> Plan | None:
        """Return the plan; None where none is stuck in a draft, and none that decodes has been silent for so long.

        What a zombie holds comes back only by its end: where the pool is short or nothing moves, it is looked for.
        """
        signal = "stuck_requests" if case.verdict.kind == "spec_residue" else "silent_requests"
        found = case.verdict.evidence.get(signal) or measured(signal, case.state, case.subject)
        if not found:
            return None
        expected = case.expect(signal, "down", 1.0)
        undo = "Nothing to take back: they have ended."
        return case.plan("end_zombies", "end_zombies", {"seconds": SILENT_SECONDS}, expected=expected, undo=undo)
