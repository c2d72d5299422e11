"""What one process tells of torch's allocator, put together: counters come each second, walks and recordings rarely."""

from __future__ import annotations

import msgspec

from agent.state import AllocatorState
from engine_hooks.allocator import HistoryRow, WalkRow
from engine_hooks.members import MemberReport

MISSED_WALKS = 3.0  # periods after which the last walk is dropped
MAX_PERIOD = 3600.0  # what a process may claim as the time between two walks, in seconds


class Allocator:
    """Takes the reports of one process; times are the agent's monotonic seconds."""

    def __init__(self) -> None:
        self._walk: WalkRow | None = None
        self._walked = 0.0
        self._history: HistoryRow | None = None

    def take(self, report: MemberReport, now: float) -> None:
        """Keep what this report has and the next will not have."""
        row = report.allocator
        walk = row.walk if row is not None else None
        if walk is not None and (self._walk is None or walk.monotonic != self._walk.monotonic):
            self._walk, self._walked = walk, now
        if report.history is not None:
            self._history = report.history

    def state(self, report: MemberReport, now: float) -> AllocatorState | None:
        """Return the whole picture by ``report``, the last one; None where it tells of no allocator."""
        row = report.allocator
        if row is None:
            return None
        walk = self._walk
        if walk is not None and (
            row.reason or now - self._walked > MISSED_WALKS * min(walk.period_seconds, MAX_PERIOD)
        ):
            walk = None
        return AllocatorState(
            row=msgspec.structs.replace(row, walk=walk),
            walk_age_seconds=None if walk is None else max(0.0, now - self._walked),
            history=self._history,
        )
