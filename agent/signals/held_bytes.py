"""Quantiles of the bytes that an engine's held KV blocks have, over half an hour. What the incident write-ups judge."""

from __future__ import annotations

from collections import deque

from agent.signals.series import Due

EVERY_SECONDS = 10.0
KEEP_SECONDS = 1800.0
MINUTE = 60.0
LEAST = 30  # samples: five minutes


class HeldBytes:
    """A sample each ten seconds; ``p90`` and ``p99`` anew each minute, None while too little is known."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, int]] = deque(maxlen=int(KEEP_SECONDS / EVERY_SECONDS))
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self._sample, self._due = Due(EVERY_SECONDS), Due(MINUTE)
        self.p90: int | None = None
        self.p99: int | None = None

    def add(self, now: float, held: int | None, block_bytes: int | None) -> None:
        """Take what is held; nothing where it or the size of a block is not known."""
        if held is None or block_bytes is None or not self._sample.now(now):
            return
        self._kept.append((now, held * block_bytes))
        while self._kept[0][0] < now - KEEP_SECONDS:
            self._kept.popleft()
        if self._due.now(now):
            sizes = sorted(size for _, size in self._kept)
            enough = len(sizes) >= LEAST
            self.p90, self.p99 = (sizes[int(share * len(sizes))] if enough else None for share in (0.90, 0.99))
