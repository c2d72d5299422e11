"""kv_stall: there is work, and no token is scheduled, whatever the pool says."""

from __future__ import annotations

from agent.retained import count_of
from agent.units import human_seconds
from agent.verdicts.base import Facts, Finding
from agent.waiting import PAUSED, STALLED_SECONDS, remedy_of, words


class KvStall:
    """Fires after ten seconds without a token while requests run or wait; an engine that was paused is not stalled."""

    kind = "kv_stall"
    confirm_seconds = 2.0
    clear_seconds = 0.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return what stands still and why; None when tokens flow, nothing is to do, or it can't be known."""
        waiting = facts.detail.waiting if facts.detail else None
        if waiting is None or waiting.stalled_seconds is None or waiting.stalled_seconds < STALLED_SECONDS:
            return None
        # Paused for new requests only, the engine has work that it is told not to do.
        if waiting.stalled_by == PAUSED or (not facts.running and {*waiting.reasons} == {PAUSED}):
            return None
        return Finding(
            sentence=f"No token has been scheduled for {human_seconds(waiting.stalled_seconds)}, with "
            f"{count_of(facts.running, 'request')} running and {facts.waiting:,} waiting for "
            f"{words(waiting.stalled_by)}.",
            remedy=remedy_of(waiting.stalled_by),
            evidence={
                "stalled_seconds": waiting.stalled_seconds,
                "idle_steps": waiting.idle_steps,
                "running": facts.running,
                "waiting": facts.waiting,
            },
        )
