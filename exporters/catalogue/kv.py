"""KV blocks of the main pool, in blocks and in bytes, and the state of their audit."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

KV_CAPACITY = Metric(
    "kvtide_kv_blocks_capacity", "gauge", "blocks", ENGINE, "Usable KV blocks of the pool, as it is now."
)
KV_HELD = Metric("kvtide_kv_blocks_held", "gauge", "blocks", ENGINE, "KV blocks with a reference count above 0.")
KV_HELD_MAX = Metric(
    "kvtide_kv_blocks_held_max",
    "gauge",
    "blocks",
    ENGINE,
    "Most KV blocks held after any step since the last report.",
    detail=True,
)
KV_CACHED_IDLE = Metric(
    "kvtide_kv_blocks_cached_idle",
    "gauge",
    "blocks",
    ENGINE,
    "Free KV blocks that still carry a prefix hash: reclaimable at once, useful if kept.",
)
KV_EMPTY = Metric("kvtide_kv_blocks_empty", "gauge", "blocks", ENGINE, "Free KV blocks with no hash.")
KV_ORPHANED = Metric(
    "kvtide_kv_blocks_orphaned",
    "gauge",
    "blocks",
    ENGINE,
    "Held KV blocks that no live request, deferred free or known pin explains: leaked. Absent where it can't be known.",
)
KV_OVER_FREED = Metric(
    "kvtide_kv_blocks_over_freed",
    "gauge",
    "blocks",
    ENGINE,
    "KV blocks with fewer references than their holders expect: a use-after-free hazard.",
)
KV_DELAYED = Metric(
    "kvtide_kv_blocks_delayed",
    "gauge",
    "blocks",
    ENGINE,
    "Blocks of finished requests that are kept for a connector until it signals.",
    detail=True,
)
KV_DEFERRED = Metric(
    "kvtide_kv_blocks_deferred",
    "gauge",
    "blocks",
    ENGINE,
    "Blocks of finished requests that wait for a step in flight.",
    detail=True,
)
KV_PINNED = Metric(
    "kvtide_kv_blocks_pinned",
    "gauge",
    "references",
    ENGINE,
    "References held for a connector that we can't see into, not old enough to count as orphaned.",
)
KV_BLOCK_BYTES = Metric(
    "kvtide_kv_block_bytes", "gauge", "bytes", ENGINE, "Size of one KV block on one rank, all layers."
)
KV_CAPACITY_BYTES = Metric(
    "kvtide_kv_capacity_bytes", "gauge", "bytes", ENGINE, "Usable KV pool on one rank.", detail=True
)
KV_HELD_BYTES = Metric("kvtide_kv_held_bytes", "gauge", "bytes", ENGINE, "Held KV blocks, in bytes on one rank.")
KV_CACHED_IDLE_BYTES = Metric(
    "kvtide_kv_cached_idle_bytes", "gauge", "bytes", ENGINE, "Cached idle KV blocks, in bytes on one rank.", detail=True
)
KV_EMPTY_BYTES = Metric(
    "kvtide_kv_empty_bytes", "gauge", "bytes", ENGINE, "Empty KV blocks, in bytes on one rank.", detail=True
)
KV_ORPHANED_BYTES = Metric(
    "kvtide_kv_orphaned_bytes", "gauge", "bytes", ENGINE, "Orphaned KV blocks, in bytes on one rank."
)
AUDIT_SUPPORTED = Metric(
    "kvtide_audit_supported",
    "gauge",
    "boolean",
    ENGINE,
    "1 where this engine's blocks can be accounted for exactly; the reason why not is in the agent's state.",
)
AUDIT_EXACT = Metric(
    "kvtide_audit_exact",
    "gauge",
    "boolean",
    ENGINE,
    "0 while a difference of references has been counted but the blocks that carry it are not named yet.",
    detail=True,
)
AUDITS = Metric("kvtide_audits_total", "counter", "passes", ENGINE, "Passes over the whole pool that have ended.")
LEDGER_DRIFT = Metric(
    "kvtide_ledger_drift_references_total",
    "counter",
    "references",
    ENGINE,
    "References that took a path which is not counted, found and corrected by the audit.",
)
