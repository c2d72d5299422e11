"""kv_orphan: held KV blocks that no live request, deferred free or known pin explains. A leak, exactly."""

from __future__ import annotations

from agent.state import PoolState
from agent.units import human_bytes
from agent.verdicts.base import Finding

REMEDY = "Leaked blocks come back only when the engine restarts; evicting the prefix cache frees none of them."


class KvOrphan:
    """Fires on any orphaned block: a sound engine has none, however busy it is."""

    kind = "kv_orphan"
    confirm_seconds = 3.0

    def judge(self, pool: PoolState) -> Finding | None:
        """Return what is orphaned; None when nothing is, or when this engine can't be audited."""
        if not pool.orphaned:
            return None
        number, share = pool.orphaned, pool.orphaned / pool.capacity
        size = pool.bytes_of(number)
        blocks = "1 KV block is" if number == 1 else f"{number:,} KV blocks are"
        evidence: dict[str, float] = {"orphaned_blocks": number, "orphaned_ratio": share}
        amount = f"{share:.1%} of the pool" if share >= 0.001 else "under 0.1% of the pool"
        if size is not None:
            evidence["orphaned_bytes"] = size
            amount = f"{human_bytes(size)}, {amount}"
        return Finding(
            sentence=f"{blocks} held by no request ({amount}): leaked, and of no use to anyone.",
            remedy=REMEDY,
            evidence=evidence,
        )
