"""kv_pinned: references that a connector which we can't see into has held for suspiciously long."""

from __future__ import annotations

from agent.retained import there_are
from agent.units import human_seconds
from agent.verdicts.base import Facts, Finding

REMEDY = (
    "If that connector is at work on them, wait; if it is idle, they are leaked and only a restart brings them back. "
    "Blocks with a reference are not evictable: resetting the prefix cache frees none of them."
)
SUSPICIOUS_SHARE = 0.5  # of the age at which they count as orphaned


class KvPinned:
    """Fires at half the age at which such references count as orphaned; known pins are explained and never fire."""

    kind = "kv_pinned"
    confirm_seconds = 5.0
    clear_seconds = 0.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return what is pinned for long; None when nothing is, or when this engine tells no pins."""
        rows = [
            (row, row.oldest_seconds, row.orphaned_after_seconds)
            for row in (facts.detail.pins if facts.detail else None) or ()
            if not row.known and row.references > 0
        ]
        old = [
            (row, age, limit)
            for row, age, limit in rows
            if age is not None and limit is not None and age > SUSPICIOUS_SHARE * limit
        ]
        if not old:
            return None
        row, age, limit = max(old, key=lambda each: each[0].references)
        number = sum(each[0].references for each in old)
        references = there_are(row.references, "reference")
        return Finding(
            sentence=f"{references} held by {row.holder} alone, which kvtide can't see into; "
            f"the oldest for {human_seconds(age)}. At {human_seconds(limit)} their blocks count as leaked.",
            remedy=REMEDY,
            evidence={"pinned_references": number, "oldest_seconds": age, "limit_seconds": limit},
            tier="warn",
        )
