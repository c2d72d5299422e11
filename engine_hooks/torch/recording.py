"""A recording of allocations on demand, which ends by itself. Off unless ``KVTIDE_HISTORY`` allows it."""

from __future__ import annotations

import time

import msgspec

from engine_hooks.allocator import HistoryRow
from engine_hooks.names import shown
from engine_hooks.torch.cuda import Cuda, UnsupportedError
from engine_hooks.torch.summary import summarise

MAX_SECONDS = 600.0
MAX_ENTRIES = 10_000
RECENT_SECONDS = 60.0


class Recording:
    """At most one recording at a time; all of it on the side thread, which calls :meth:`tick`."""

    def __init__(self, cuda: Cuda, *, allowed: bool) -> None:
        self._cuda = cuda
        self._allowed = allowed
        self._began: float | None = None
        self._ends = 0.0
        self._sequence = 0
        self._started_at = 0.0
        self.outcome: HistoryRow | None = None

    @property
    def on(self) -> bool:
        """Whether one runs."""
        return self._began is not None

    def begin(self, seconds: float, now: float) -> str:
        """Record for ``seconds``, ``MAX_SECONDS`` at most; return why not, or an empty string."""
        if refusal := self._refusal(seconds, now):
            return refusal
        try:
            self._cuda.record(MAX_ENTRIES)
        except UnsupportedError as error:
            return str(error)
        self._sequence += 1
        self._began, self._ends, self._started_at = now, now + min(seconds, MAX_SECONDS), time.time()
        return ""

    def _refusal(self, seconds: float, now: float) -> str:
        if not self._allowed:
            return "KVTIDE_HISTORY is not set in this process's environment"
        if not seconds > 0:
            return f"a recording of {seconds:g} s"
        if absent := self._cuda.absent():
            return absent
        if self.on:
            return f"one is running, for another {self._ends - now:.0f} s"
        return "this process records a history of its own" if self._cuda.recording() else ""

    def recent(self) -> bool:
        """Whether the last outcome is less than a minute old."""
        return self.outcome is not None and time.time() - self._started_at - self.outcome.seconds < RECENT_SECONDS

    def tick(self, now: float) -> bool:
        """End a recording that is due; return whether there is a new outcome."""
        if self._began is None or now < self._ends:
            return False
        seconds, self._began = now - self._began, None
        self._end(seconds)
        return True

    def stop(self) -> None:
        """End a recording without an outcome."""
        if self._began is not None:
            self._began = None
            self._cuda.stop_recording()

    def _end(self, seconds: float) -> None:
        before = time.monotonic()
        about = HistoryRow(sequence=self._sequence, started_at=self._started_at, seconds=seconds)
        try:
            try:
                summary = summarise(self._cuda.traces())
            finally:
                self._cuda.stop_recording()
        except Exception as error:
            reason = f"reading it failed: {type(error).__name__}: {error}"[:300]
            reason = shown(reason)
            self.outcome = msgspec.structs.replace(about, reason=reason)
            return
        changes = {"read_seconds": time.monotonic() - before, "full": summary.entries >= MAX_ENTRIES}
        self.outcome = msgspec.structs.replace(about, **changes, **summary._asdict())
