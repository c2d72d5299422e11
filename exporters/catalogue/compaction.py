"""Live compaction: blocks out of the pool, blocks moved and lost by it, memory given back. Of engines that obey it."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

COMPACTION_STATE = Metric(
    "kvtide_compaction_state",
    "gauge",
    "",
    (*ENGINE, "state"),
    "1 for the state that it is in: idle, moving, releasing, shrunk, growing or stopped.",
    detail=True,
)
COMPACTION_OFFLINE = Metric(
    "kvtide_compaction_offline_blocks",
    "gauge",
    "blocks",
    ENGINE,
    "Blocks that compaction has taken out of the pool; the capacity is without them.",
)
COMPACTION_RELEASED = Metric(
    "kvtide_compaction_released_bytes",
    "gauge",
    "bytes",
    ENGINE,
    "Memory of offline blocks that all workers have given back; absent where the device's can't be.",
)
COMPACTION_MOVED = Metric(
    "kvtide_compaction_moved_blocks_total",
    "counter",
    "blocks",
    ENGINE,
    "Held blocks that were moved below the line.",
    detail=True,
)
COMPACTION_MOVED_IDLE = Metric(
    "kvtide_compaction_moved_cached_blocks_total",
    "counter",
    "blocks",
    ENGINE,
    "Cached blocks that nobody held and that were moved.",
    detail=True,
)
COMPACTION_DROPPED = Metric(
    "kvtide_compaction_dropped_cached_blocks_total",
    "counter",
    "blocks",
    ENGINE,
    "Cached blocks that compaction has lost.",
    detail=True,
)
COMPACTION_GROWN = Metric(
    "kvtide_compaction_grown_blocks_total",
    "counter",
    "blocks",
    ENGINE,
    "Blocks that came back into the pool.",
    detail=True,
)
COMPACTION_DEMANDED = Metric(
    "kvtide_compaction_demanded_blocks_total",
    "counter",
    "blocks",
    ENGINE,
    "Blocks that came back because a request needed them at once.",
    detail=True,
)
COMPACTION_PAUSE = Metric(
    "kvtide_compaction_pause_seconds",
    "histogram",
    "seconds",
    ENGINE,
    "What one slice of compaction took between two steps.",
    detail=True,
)
