"""What compaction has done and how it stands, for the wire."""

from __future__ import annotations

from engine_hooks.core.buckets import BLOCK_SECONDS, Buckets
from engine_hooks.core.observers import Context
from engine_hooks.detail import CompactionRow

LEVER = "compact"


class Counts:
    """Filled by the compactor; blocks and bytes since the engine came up.

    ``state``: idle (all blocks are there), moving, releasing, shrunk, growing, stopped. ``reason``: why it stopped, or
    why memory that it wants back is not there. ``released_bytes``: of what is offline now, by the kernel's word; None
    where this device's memory can't be given back. ``orders``: how often somebody has said what size it is to have.
    """

    def __init__(self) -> None:
        self.state, self.reason = "idle", ""
        self.moved = self.moved_idle = self.dropped = self.grown = self.demanded = self.orders = 0
        self.released_bytes: int | None = 0
        self.pauses = Buckets(BLOCK_SECONDS)


class CompactionObserver:
    """Fills ``Detail.compaction``; the lever finds it there and writes to ``counts``."""

    HOOK = "compaction_row"
    SECTION = "compaction"

    def __init__(self, context: Context) -> None:
        self._view = context.view
        self._allowed = LEVER in context.settings.levers
        self.counts = Counts()

    def section(self, _now: float) -> CompactionRow | None:
        """Return how it stands; None where this engine does not obey the lever."""
        if not self._allowed:
            return None
        counts, offline = self.counts, self._view.offline
        return CompactionRow(
            state=counts.state,
            reason=counts.reason[:200],
            offline=offline,
            moved_total=counts.moved,
            moved_idle_total=counts.moved_idle,
            dropped_total=counts.dropped,
            grown_total=counts.grown,
            demanded_total=counts.demanded,
            released_bytes=counts.released_bytes,
            pause_seconds=counts.pauses.row(),
            orders_total=counts.orders,
        )
