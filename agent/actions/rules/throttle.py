"""Throttles: the engine lets fewer requests in. What runs goes on; the pool empties by what ends."""

from __future__ import annotations

from agent.actions.rules.base import Case
from agent.actions.types import Action, Plan
from agent.policy.actions import Rung

SHORT = frozenset({"kv_pressure", "preemption_thrash"})


def number_of(action: Action, name: str) -> float | None:
    """Return a number among the arguments of an action in force."""
    value = action.plan.arguments.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class Watermark:
    """Blocks that admission leaves free: the gentlest. Raised step by step, twice as much each."""

    rung: Rung = "watermark"
    kinds = SHORT

    def plan(self, case: Case) -> Plan | None:
        """Return the next step; None at the most that the policy allows, or without a pool."""
        limits = case.policy.actions
        blocks, most = limits.watermark_ratio * case.capacity, limits.watermark_most_ratio * case.capacity
        held = case.in_force.get("watermark")
        if held is not None:
            now = number_of(held, "blocks") or 0
            if now >= int(most):
                return None
            blocks = min(most, 2 * now)
        if int(blocks) < 1:
            return None
        share = int(blocks) / case.capacity
        undo = "The watermark is lowered step by step to what it was."
        return case.plan("watermark", "watermark", {"blocks": int(blocks)}, expected=case.relief(share / 4), undo=undo)


class ActiveCap:
    """Requests that may run at once, by a fifth fewer with each step."""

    rung: Rung = "active_cap"
    kinds = SHORT

    def plan(self, case: Case) -> Plan | None:
        """Return the next step; None where as few run as the policy always allows."""
        limits = case.policy.actions
        held = case.in_force.get("active_cap")
        now = number_of(held, "requests") if held is not None else case.engine.running
        if now is None or now <= limits.active_floor:
            return None
        requests = max(limits.active_floor, int(limits.step_factor * now))
        undo = "The cap is raised step by step, then taken off."
        return case.plan("active_cap", "active_cap", {"requests": requests}, expected=case.relief(0.02), undo=undo)


class BatchTokens:
    """Tokens of one step, where torch's allocator has reserved far more than it uses: activations shrink with them."""

    rung: Rung = "batch_tokens"
    kinds = frozenset({"allocator_fragmentation"})

    def plan(self, case: Case) -> Plan | None:
        """Return a step down by a fifth; None once it is made, or where overcommit is not what is wrong."""
        overcommit = case.verdict.evidence.get("overcommit_ratio", 0.0)
        if overcommit < case.policy.allocator.overcommit_light or "batch_tokens" in case.in_force:
            return None
        undo = "The engine's own number of tokens a step is set again."
        arguments = {"factor": case.policy.actions.step_factor}
        return case.plan("batch_tokens", "batch_tokens", arguments, expected=None, undo=undo)
