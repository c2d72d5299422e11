"""A smaller KV pool, where nobody needs it as it is: see :mod:`agent.actions.room` for who says so."""

from __future__ import annotations

from agent.actions.gates.lever import NOT_LISTED
from agent.actions.memory import OFFERS
from agent.actions.processes import all_processes, targets_of
from agent.actions.rules.base import Case, priority_of
from agent.actions.types import Plan
from agent.policy.actions import Rung

LEVER = "compact"
SECONDS = 120.0  # a pool moves in slices between steps, and pages go beside them


class Compact:
    """What requests hold moves to the front of the pool, and the rest goes out of it."""

    rung: Rung = "compact"
    kinds = OFFERS

    def plan(self, case: Case) -> Plan | None:
        """Return the plan; None where the pool is smaller already, or the engine can't."""
        target = case.verdict.evidence.get("target_blocks")
        if target is None or LEVER in case.in_force or not _can(case):
            return None
        block_bytes = case.engine.pool.block_bytes if case.engine.pool is not None else None
        least = 0.5 * (case.capacity - target) * (block_bytes or 0)  # of one rank: all together give back more
        arguments = {"to_blocks": int(target), "priority": priority_of(case)}
        expected = case.expect("released_kv_bytes", "up", max(1.0, least), SECONDS)
        undo = "All blocks come back: before a request is refused any, and at once when the pool is needed."
        return case.plan("compact", LEVER, arguments, expected=expected, undo=undo)


def _can(case: Case) -> bool:
    """Whether all processes that must do it could, allowed or not: an engine of another kind isn't asked for it."""
    known = all_processes(case.state)
    rows = [known[target].row(LEVER) for target in targets_of(case.state, case.engine, LEVER)]
    return bool(rows) and all(row is not None and (row.ok or NOT_LISTED in row.reason) for row in rows)
