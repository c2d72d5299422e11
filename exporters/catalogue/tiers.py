"""Tiers that KV is offloaded to: host memory, disk."""

from __future__ import annotations

from exporters.catalogue.base import Metric

_TIER = ("engine", "tier")

TIER_CAPACITY = Metric(
    "kvtide_tier_blocks_capacity", "gauge", "blocks", _TIER, "Blocks that a tier has room for.", detail=True
)
TIER_USED = Metric(
    "kvtide_tier_blocks_used", "gauge", "blocks", _TIER, "Blocks of a tier that transfers under way hold.", detail=True
)
TIER_CACHED = Metric(
    "kvtide_tier_blocks_cached",
    "gauge",
    "blocks",
    _TIER,
    "Copies in a tier that may be dropped at any time; absent where they can't be told from empty blocks.",
    detail=True,
)
TIER_PENDING = Metric(
    "kvtide_tier_jobs_pending", "gauge", "jobs", _TIER, "Transfers to or from a tier under way.", detail=True
)
TIER_OLDEST = Metric(
    "kvtide_tier_jobs_oldest_seconds",
    "gauge",
    "seconds",
    _TIER,
    "Age of the oldest of them; absent when there is none.",
    detail=True,
)
TIER_ABANDONED = Metric(
    "kvtide_tier_jobs_abandoned",
    "gauge",
    "jobs",
    _TIER,
    "Transfers under way whose result is not wanted any more; their blocks are held until they end.",
    detail=True,
)
TIER_UNSEEN = Metric(
    "kvtide_tier_jobs_unseen",
    "gauge",
    "jobs",
    _TIER,
    "Transfers beyond the number that is followed one by one.",
    detail=True,
)
TIER_STUCK = Metric("kvtide_tier_jobs_stuck", "gauge", "jobs", _TIER, "Those that have been under way for too long.")
TIER_STUCK_AFTER = Metric(
    "kvtide_tier_stuck_after_seconds", "gauge", "seconds", _TIER, "For how long that is.", detail=True
)
