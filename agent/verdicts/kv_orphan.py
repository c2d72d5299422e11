"""kv_orphan: held KV blocks that no live request, deferred free or known pin explains. A leak, exactly."""

from __future__ import annotations

from agent.retained import blame, leaks_of, there_are
from agent.units import human_bytes
from agent.verdicts.base import Facts, Finding

REMEDY = "Leaked blocks come back only when the engine restarts; evicting the prefix cache frees none of them."


class KvOrphan:
    """Fires on any orphaned block: a sound engine has none, however busy it is."""

    kind = "kv_orphan"
    confirm_seconds = 3.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return what is orphaned; None when nothing is, or when this engine can't be audited."""
        pool = facts.pool
        if pool is None or not pool.orphaned:
            return None
        number, share = pool.orphaned, pool.orphaned / pool.capacity
        size = pool.bytes_of(number)
        evidence: dict[str, float] = {"orphaned_blocks": number, "orphaned_ratio": share}
        amount = f"{share:.1%} of the pool" if share >= 0.001 else "under 0.1% of the pool"
        if size is not None:
            evidence["orphaned_bytes"] = size
            amount = f"{human_bytes(size)}, {amount}"
        blocks = there_are(number, "KV block")
        who = blame(leaks_of(facts.detail, "orphaned"))
        return Finding(
            sentence=f"{blocks} held by no request ({amount}): leaked, and of no use to anyone.{who}",
            remedy=REMEDY,
            evidence=evidence,
        )
