"""kv_orphan: held KV blocks that no live request, deferred free or known pin explains. A leak, exactly."""

from __future__ import annotations

from agent.retained import beside, blame, leaks_of, there_are
from agent.state import PoolState, Tier
from agent.units import human_bytes
from agent.verdicts.base import Facts, Finding
from agent.verdicts.harm import fp8_factor, of_each_rank
from agent.verdicts.inferred_leak import inferred

REMEDY = (
    "Leaked blocks come back when the engine restarts, or where it lets kvtide give them back (lever reclaim_orphans); "
    "evicting the prefix cache frees none of them."
)
PAGE_RATIO = 0.10  # leaked of the pool: it is a tenth smaller for all, and a leak goes on
FELT_RATIO = 0.01  # leaked of a pool that is short, by which it is worth getting up


class KvOrphan:
    """Fires on any orphaned block of any pool: a sound engine has none, however busy it is.

    A few blocks can wait for the morning; a tenth of the pool, or a leak in a pool that is short, can't. Where blocks
    can't be audited it is inferred, see :mod:`agent.verdicts.inferred_leak`.
    """

    kind = "kv_orphan"
    confirm_seconds = 3.0
    clear_seconds = 0.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return what is orphaned; None when nothing is, or when this engine can't be audited."""
        sentences: list[str] = []
        evidence: dict[str, float] = {}
        if facts.pool is not None and facts.pool.orphaned:
            sentences.append(_main(facts.pool, facts.pool.orphaned, facts, evidence))
        for name, number in beside(facts.detail, "orphaned"):
            sentences.append(f"{there_are(number, 'block')} held by nothing in the pool {name}: leaked.")
            evidence["orphaned_blocks_beside"] = evidence.get("orphaned_blocks_beside", 0) + number
        if sentences:
            return Finding(" ".join(sentences), REMEDY, evidence, _tier(facts))
        return inferred(facts) if facts.pool is None or facts.pool.orphaned is None else None


def _tier(facts: Facts) -> Tier:
    pool, signals = facts.pool, facts.signals
    if pool is None or not pool.capacity or not pool.orphaned:
        return "warn"
    share, use = pool.orphaned / pool.capacity, pool.held / pool.capacity
    if share >= PAGE_RATIO:
        return "page"
    short = use >= facts.policy.use.warn_ratio * fp8_factor(facts) and signals is not None and signals.harm
    return "page" if short and share >= FELT_RATIO else "warn"


def _main(pool: PoolState, number: int, facts: Facts, evidence: dict[str, float]) -> str:
    share, size = number / pool.capacity, pool.bytes_of(number)
    evidence |= {"orphaned_blocks": number, "orphaned_ratio": share}
    amount = f"{share:.1%} of the pool" if share >= 0.001 else "under 0.1% of the pool"
    if size is not None:
        evidence["orphaned_bytes"] = size
        amount = f"{human_bytes(size)}{of_each_rank(facts)}, {amount}"
    blocks, who = there_are(number, "KV block"), blame(leaks_of(facts.detail, "orphaned"))
    return f"{blocks} held by no request ({amount}): leaked, and of no use to anyone.{who}"
