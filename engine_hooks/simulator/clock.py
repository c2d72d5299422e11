"""Virtual time for a whole process: it stands still while code runs, and goes on only when it is told to.

The hooks and vLLM read ``time.monotonic`` and its like; here all of them read this clock. Modules that take such a
function over at import must be imported after :func:`install`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

READING_SECONDS = 0.0001  # what a stretch of an audit takes on a real engine between two looks at the clock
MONOTONIC_START = 1000.0


class VirtualClock:
    """``now`` is monotonic seconds; ``unix`` of it is what ``time.time`` says."""

    def __init__(self) -> None:
        self.now = MONOTONIC_START
        self._offset = 0.0

    def restart(self, unix: float) -> None:
        """Begin anew, at Unix time ``unix``."""
        self.now = MONOTONIC_START
        self._offset = unix - MONOTONIC_START

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return self.now

    def unix(self) -> float:
        """Return Unix seconds."""
        return self.now + self._offset

    def nanoseconds(self) -> int:
        """Return monotonic nanoseconds."""
        return int(self.now * 1e9)

    def unix_nanoseconds(self) -> int:
        """Return Unix nanoseconds."""
        return int(self.unix() * 1e9)

    @staticmethod
    def nothing() -> float:
        """Return the CPU time of a thread that takes none: here only steps take time."""
        return 0.0

    def working(self, share: float) -> Callable[[], float]:
        """Return a clock for what is sliced by time: at each look, ``share`` of ``READING_SECONDS`` has passed on it.

        Between two steps only: the next one begins at ``now`` again.
        """
        spent, begun = 0.0, self.now

        def look() -> float:
            nonlocal spent, begun
            if self.now != begun:
                spent, begun = 0.0, self.now
            spent += share * READING_SECONDS
            return begun + spent

        return look

    def install(self) -> None:
        """Have this process read this clock."""
        time.monotonic = time.perf_counter = self.monotonic
        time.monotonic_ns = time.perf_counter_ns = self.nanoseconds
        time.time, time.time_ns = self.unix, self.unix_nanoseconds
        time.thread_time = time.process_time = self.nothing
