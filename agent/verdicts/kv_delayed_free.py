"""kv_delayed_free: blocks of finished requests that a connector keeps for longer than it may."""

from __future__ import annotations

from collections.abc import Mapping

from agent.retained import DEFERRED, LOADING, count_of, kept_for, past_lease, plateau, there_are
from agent.state import Tier
from agent.units import human_seconds
from agent.verdicts.base import Facts, Finding
from engine_hooks.detail import DelayedRow

REMEDY = (
    "See whether that peer lives and still answers: its signal is what frees them. Evicting or preempting frees none."
)
REMEDY_PLATEAU = (
    "Make the peer fetch sooner, shorten the connector's lease, or send fewer requests through it. Evicting or "
    "preempting frees none."
)
PAGE_RATIO = 0.10  # of the pool that nobody has a right to any more
REMEDY_DEFERRED = "They come back when the step that they wait for ends; if no step ends, the engine must be restarted."


class KvDelayedFree:
    """Fires past the lease, or after ten minutes where there is none. Inside its lease a delayed free is no fault, but
    where so much comes in meanwhile that the pool is full before the first lease ends.
    """

    kind = "kv_delayed_free"
    confirm_seconds = 5.0
    clear_seconds = 0.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return the worst delayed free; None when all are inside their leases or this engine tells none."""
        rows = [row for row in (facts.detail.delayed if facts.detail else None) or () if past_lease(row)]
        if not rows:
            return _never_levels_off(facts)
        worst = max(rows, key=_late_blocks)
        blocks = sum(map(_late_blocks, rows))
        others = len(rows) - 1
        more = f" {count_of(others, 'other')} {'lets' if others == 1 else 'let'} go no more either." if others else ""
        evidence: dict[str, float] = {"late_blocks": blocks, "oldest_seconds": max(row.oldest_seconds for row in rows)}
        if worst.lease_seconds is not None:
            evidence["lease_seconds"] = worst.lease_seconds
        return Finding(
            sentence=_sentence(worst, facts.peers) + more,
            remedy=REMEDY_DEFERRED if worst.direction == DEFERRED else REMEDY,
            evidence=evidence,
            tier=_tier(blocks, facts),
        )


def _tier(blocks: int, facts: Facts) -> Tier:
    return "page" if facts.pool is not None and blocks >= PAGE_RATIO * facts.pool.capacity else "warn"


def _never_levels_off(facts: Facts) -> Finding | None:
    """A stream of delayed frees levels off at its rate times the lease; beyond the pool's size it never does."""
    pool = facts.pool
    if pool is None or not pool.capacity or pool.held < facts.policy.growth.forecast_held_ratio * pool.capacity:
        return None
    rows = [(row, level) for row in (facts.detail.delayed if facts.detail else None) or () if (level := plateau(row))]
    total = sum(level for _, level in rows)
    if not rows or total < pool.capacity:
        return None
    row, _ = max(rows, key=lambda each: each[1])
    blocks = sum(each.blocks for each, _ in rows)
    return Finding(
        f"{there_are(blocks, 'KV block')} kept for {kept_for(row, facts.peers)}, inside the lease, and at this rate "
        f"they would level off at {total:,.0f}; the pool has {pool.capacity:,}: it is full before the lease ends.",
        REMEDY_PLATEAU,
        {"delayed_blocks": blocks, "plateau_blocks": total, "capacity_blocks": pool.capacity},
        "warn",
        30.0,
    )


def _late_blocks(row: DelayedRow) -> int:
    return row.blocks if row.lease_seconds is None else row.expired


def _sentence(row: DelayedRow, peers: Mapping[str, str]) -> str:
    number = _late_blocks(row)
    whose = "waiting" if row.direction == LOADING else "finished"
    blocks = f"{count_of(number, 'KV block')} of {whose} requests {'is' if number == 1 else 'are'}"
    kept, oldest = f"{blocks} kept for {kept_for(row, peers)}", f"the oldest for {human_seconds(row.oldest_seconds)}"
    if row.lease_seconds is None:
        return f"{kept}, {oldest}, and no lease ends that."
    text = f"{kept} past the lease of {human_seconds(row.lease_seconds)}: {oldest}."
    inside = row.blocks - number
    # What has come in during the last lease is its rate times the lease: where a steady stream levels off.
    return f"{text} At this rate {inside:,} more are always inside it." if inside > 0 else text
