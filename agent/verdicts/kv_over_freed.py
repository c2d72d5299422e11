"""kv_over_freed: KV blocks that were given back more often than they were taken, while somebody still uses them."""

from __future__ import annotations

from agent.retained import blame, count_of, leaks_of
from agent.verdicts.base import Facts, Finding

REMEDY = "Drain this engine and restart it: answers may be wrong already, and nothing mends it while it runs."


class KvOverFreed:
    """Fires on any over-freed block: a sound engine has none."""

    kind = "kv_over_freed"
    confirm_seconds = 3.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return what is over-freed; None when nothing is, or when this engine can't be audited."""
        if facts.pool is None or not facts.pool.over_freed:
            return None
        number = facts.pool.over_freed
        blocks = f"{count_of(number, 'KV block')} {'was' if number == 1 else 'were'}"
        who = blame(leaks_of(facts.detail, "over_freed"))
        return Finding(
            sentence=f"{blocks} freed while still in use: another request can be given the same memory and overwrite "
            f"it.{who}",
            remedy=REMEDY,
            evidence={"over_freed_blocks": number},
        )
