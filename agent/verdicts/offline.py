"""A pool that somebody has made smaller is short for that reason first: said before all else that helps."""

from __future__ import annotations

from agent.retained import there_are
from agent.verdicts.base import Facts

WORTH_NAMING = 0.05  # of the pool as it was


def grow_back_first(facts: Facts) -> str:
    """Return what brings a pool's offline blocks back, with a blank at its end; empty where hardly any are offline."""
    row = facts.detail.compaction if facts.detail is not None else None
    if row is None or facts.pool is None:
        return ""
    whole = facts.pool.capacity + row.offline
    if row.offline < WORTH_NAMING * whole:
        return ""
    blocks = there_are(row.offline, "block")
    return f"{blocks} offline ({row.offline / whole:.0%} of the pool): undoing compact grows it back. "
