"""The prefix cache: whose blocks are evicted first. Frees no capacity, and does not claim to."""

from __future__ import annotations

from agent.actions.rules.base import LIVE_RATE_SECONDS, Case, priority_of
from agent.actions.types import Plan
from agent.policy.actions import Rung

IDLE_SECONDS = 300.0  # a session without a turn for so long is idle
KEPT_TURNS = 2
MOST_HELD, CYCLE_SECONDS, HOLD_MILLISECONDS = 100, 5.0, 300.0


class EvictIdle:
    """Unreachable, duplicate, never hit and idle sessions' blocks go first, so that the others' stay.

    From which age on a block was not hit for good the engine learns by itself: a fixed one would do harm where all come
    back.
    """

    rung: Rung = "evict_idle"
    kinds = frozenset({"eviction_storm", "kv_pressure"})

    def plan(self, case: Case) -> Plan | None:
        """Return the plan; under mere pressure only where the cache is worth something: hits are lost to evictions."""
        signals = case.signals
        lost = signals.rebuild_evicted_ratio if signals else None
        if case.verdict.kind == "kv_pressure" and not lost:
            return None
        arguments = {"idle_seconds": IDLE_SECONDS, "turns": KEPT_TURNS, "priority": priority_of(case)}
        expected = None if not lost else case.expect("rebuild_evicted_ratio", "down", 0.1 * lost, LIVE_RATE_SECONDS)
        undo = "Nothing to take back: what is evicted is computed again when it is asked for."
        return case.plan("evict_idle", "evict_idle", arguments, expected=expected, undo=undo)


class HoldHot:
    """Cached blocks that are hit again and again are kept from the front of the queue for a moment."""

    rung: Rung = "hold_hot"
    kinds = frozenset({"eviction_storm"})

    def plan(self, case: Case) -> Plan | None:
        """Return the plan; None where they are held already."""
        if "hold_hot" in case.in_force:
            return None
        signals = case.signals
        lost = signals.rebuild_evicted_ratio if signals else None
        arguments = {"blocks": MOST_HELD, "cycle_seconds": CYCLE_SECONDS, "hold_milliseconds": HOLD_MILLISECONDS}
        expected = None if not lost else case.expect("rebuild_evicted_ratio", "down", 0.1 * lost, LIVE_RATE_SECONDS)
        undo = "Blocks are evicted in vLLM's own order again."
        return case.plan("hold_hot", "hold_hot", arguments, expected=expected, undo=undo)
