"""kv_over_freed: KV blocks that were given back more often than they were taken, while somebody still uses them."""

from __future__ import annotations

from agent.retained import beside, blame, count_of, leaks_of
from agent.verdicts.base import Facts, Finding

REMEDY = "Drain this engine and restart it: answers may be wrong already, and nothing mends it while it runs."
HAZARD = "another request can be given the same memory and overwrite it."


class KvOverFreed:
    """Fires on any over-freed block of any pool: a sound engine has none."""

    kind = "kv_over_freed"
    confirm_seconds = 3.0
    clear_seconds = 0.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return what is over-freed; None when nothing is, or when this engine can't be audited."""
        sentences: list[str] = []
        evidence: dict[str, float] = {}
        number = facts.pool.over_freed if facts.pool else None
        if number:
            who = blame(leaks_of(facts.detail, "over_freed"))
            sentences.append(f"{_were(number, 'KV block')} freed while still in use: {HAZARD}{who}")
            evidence["over_freed_blocks"] = number
        for name, extra in beside(facts.detail, "over_freed"):
            sentences.append(f"{_were(extra, 'block')} freed while still in use in the pool {name}: {HAZARD}")
            evidence["over_freed_blocks_beside"] = evidence.get("over_freed_blocks_beside", 0) + extra
        return Finding(" ".join(sentences), REMEDY, evidence) if sentences else None


def _were(number: int, noun: str) -> str:
    return f"{count_of(number, noun)} {'was' if number == 1 else 'were'}"
