"""What failed in this process, the last few; the same again is counted, not kept twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from engine_hooks.allocator import MAX_EVENTS, OOM, MemoryEvent

SAME_SECONDS = 600.0
RAISED_SECONDS = 30.0  # torch raises at once after its observers; what handles the exception may be slow
REPEAT_SECONDS = 60.0


class Events:
    """Written by the threads that failed, read by the side thread.

    A failed allocation is told twice: by the observer, in numbers, and by the exception, with its message. The two are
    made one.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # For an allocation that fails in a finaliser, while the same thread is in here.
        self._lock = threading.RLock()
        self._events: list[MemoryEvent] = []
        self._sequence = 0
        self._untold: tuple[int, float] | None = None  # the observer's last event, whose exception is still to come

    def observed(self, event: MemoryEvent) -> None:
        """Take a failed allocation, in numbers; its sequence, time and count are set here."""
        with self._lock:
            known = self._last(lambda e: (e.device, e.requested_bytes) == (event.device, event.requested_bytes), OOM)
            if known is not None:
                told = {"message": known.message, "where": known.where}
                # A file that was written is not forgotten for one that was not.
                told["snapshot"] = event.snapshot if event.snapshot.startswith("/") else known.snapshot
                event = msgspec.structs.replace(event, **told)
            self._untold = (self._put(event, known), self._clock())

    def raised(self, kind: str, message: str, where: str) -> None:
        """Take an exception of ``kind``, caught in ``where``."""
        with self._lock:
            now = self._clock()
            told = {"message": message, "where": where}
            if kind == OOM and self._untold is not None:
                sequence, at = self._untold
                self._untold = None
                for place, event in enumerate(self._events):
                    if event.sequence == sequence and now - at <= RAISED_SECONDS:
                        self._events[place] = msgspec.structs.replace(event, **told)
                        return
            known = self._last(lambda e: e.where == where, kind)
            event = known or MemoryEvent(sequence=0, kind=kind, at=now)
            self._put(msgspec.structs.replace(event, **told), known)

    def _last(self, matches: Callable[[MemoryEvent], bool], kind: str) -> MemoryEvent | None:
        since = self._clock() - SAME_SECONDS
        return next((e for e in reversed(self._events) if e.kind == kind and e.at >= since and matches(e)), None)

    def _put(self, event: MemoryEvent, known: MemoryEvent | None) -> int:
        if known is not None:
            self._events.remove(known)
            sequence, count = known.sequence, known.count + 1
        else:
            self._sequence += 1
            sequence, count = self._sequence, 1
        self._events.append(msgspec.structs.replace(event, sequence=sequence, count=count, at=self._clock()))
        del self._events[:-MAX_EVENTS]
        return sequence

    def all(self) -> tuple[MemoryEvent, ...]:
        """Return those that are kept, the oldest first."""
        with self._lock:
            return tuple(self._events)

    def recent(self) -> tuple[MemoryEvent, ...]:
        """Return those of the last minute."""
        since = self._clock() - REPEAT_SECONDS
        return tuple(event for event in self.all() if event.at >= since)
