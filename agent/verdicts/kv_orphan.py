"""kv_orphan: held KV blocks that no live request, deferred free or known pin explains. A leak, exactly."""

from __future__ import annotations

from agent.retained import beside, blame, leaks_of, there_are
from agent.state import PoolState
from agent.units import human_bytes
from agent.verdicts.base import Facts, Finding
from engine_hooks.detail import Detail

REMEDY = "Leaked blocks come back only when the engine restarts; evicting the prefix cache frees none of them."


class KvOrphan:
    """Fires on any orphaned block of any pool: a sound engine has none, however busy it is."""

    kind = "kv_orphan"
    confirm_seconds = 3.0
    clear_seconds = 0.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return what is orphaned; None when nothing is, or when this engine can't be audited."""
        sentences: list[str] = []
        evidence: dict[str, float] = {}
        if facts.pool is not None and facts.pool.orphaned:
            sentences.append(_main(facts.pool, facts.pool.orphaned, facts.detail, evidence))
        for name, number in beside(facts.detail, "orphaned"):
            sentences.append(f"{there_are(number, 'block')} held by nothing in the pool {name}: leaked.")
            evidence["orphaned_blocks_beside"] = evidence.get("orphaned_blocks_beside", 0) + number
        return Finding(" ".join(sentences), REMEDY, evidence) if sentences else None


def _main(pool: PoolState, number: int, detail: Detail | None, evidence: dict[str, float]) -> str:
    share, size = number / pool.capacity, pool.bytes_of(number)
    evidence |= {"orphaned_blocks": number, "orphaned_ratio": share}
    amount = f"{share:.1%} of the pool" if share >= 0.001 else "under 0.1% of the pool"
    if size is not None:
        evidence["orphaned_bytes"] = size
        amount = f"{human_bytes(size)}, {amount}"
    blocks, who = there_are(number, "KV block"), blame(leaks_of(detail, "orphaned"))
    return f"{blocks} held by no request ({amount}): leaked, and of no use to anyone.{who}"
