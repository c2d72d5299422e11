"""From what bpftrace prints to counts by engine and function, over its restarts."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.sources.driver_calls.program import BOUNDS, CALLS
from agent.sources.driver_calls.state import CallRow
from engine_hooks.detail import Histogram

RECENT_SECONDS = 300.0
MARK_SECONDS = 10.0

Key = tuple[str, str]  # engine, call


@dataclass(slots=True)
class Count:
    """Calls by bucket, one more than there are bounds, their time and their failures."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    nanoseconds: int = 0
    failures: int = 0

    def add(self, other: Count) -> None:
        """Add what another counted."""
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.nanoseconds += other.nanoseconds
        self.failures += other.failures


def counts_of(maps: Mapping[str, Any], engines: Mapping[int, str]) -> dict[Key, Count]:
    """Return the counts in the maps @h, @s and @f of our program; ``engines``: by pid.

    Each map is a mapping from ``call,pid`` (@h: ``call,pid,bucket``) to a number; what is not in this form is left out.
    """
    found: dict[Key, Count] = {}
    for name in ("@h", "@s", "@f"):
        values = maps.get(name)
        for text, number in values.items() if isinstance(values, dict) else ():
            key, bucket = _parts(text, engines)
            if key is None or not isinstance(number, int):
                continue
            count = found.setdefault(key, Count())
            if name == "@h" and bucket is not None and 0 <= bucket <= len(BOUNDS):
                count.buckets[bucket] += number
            elif name == "@s":
                count.nanoseconds += number
            elif name == "@f":
                count.failures += number
    return found


def _parts(text: str, engines: Mapping[int, str]) -> tuple[Key | None, int | None]:
    words = text.split(",")
    if not all(word.isdecimal() for word in words) or len(words) not in {2, 3}:
        return None, None
    call, pid = int(words[0]), int(words[1])
    if call >= len(CALLS) or pid not in engines:
        return None, None
    return (engines[pid], CALLS[call]), int(words[2]) if len(words) == 3 else None


def quantile(buckets: Collection[int], share: float) -> float | None:
    """Return the upper bound of the bucket that holds the quantile ``share``; the last stands for all above it."""
    total, below = sum(buckets), 0
    if not total:
        return None
    for bound, number in zip((*BOUNDS, BOUNDS[-1]), buckets, strict=True):
        below += number
        if below >= share * total:
            return bound
    return BOUNDS[-1]


class Ledger:
    """Counts since the source began: those of tracers that have ended, and of the one that runs."""

    def __init__(self) -> None:
        self._ended: dict[Key, Count] = {}
        self._marks: dict[Key, deque[tuple[float, list[int]]]] = {}

    def close(self, last: Mapping[Key, Count]) -> None:
        """A tracer has ended with these counts."""
        for key, count in last.items():
            self._ended.setdefault(key, Count()).add(count)

    def rows(self, running: Mapping[Key, Count], engines: Collection[str], now: float) -> tuple[CallRow, ...]:
        """Return the rows of ``engines``; what belongs to others is forgotten. ``now``: monotonic seconds."""
        for key in [key for key in self._ended if key[0] not in engines]:
            del self._ended[key]
        rows = []
        for key in sorted({*self._ended, *(key for key in running if key[0] in engines)}):
            total = Count()
            for part in (self._ended.get(key), running.get(key)):
                if part is not None:
                    total.add(part)
            rows.append(_row(key, total, self._recent(key, total.buckets, now)))
        self._marks = {key: marks for key, marks in self._marks.items() if key[0] in engines}
        return tuple(rows)

    def _recent(self, key: Key, buckets: list[int], now: float) -> list[int]:
        """Return what has come in the last five minutes, give or take ten seconds."""
        marks = self._marks.setdefault(key, deque([(now, [0] * len(buckets))]))
        while len(marks) > 1 and now - marks[1][0] >= RECENT_SECONDS:
            marks.popleft()
        if now - marks[-1][0] >= MARK_SECONDS:
            marks.append((now, buckets))
        return [a - b for a, b in zip(buckets, marks[0][1], strict=True)]


def _row(key: Key, total: Count, recent: list[int]) -> CallRow:
    engine, call = key
    return CallRow(
        engine=engine,
        call=call,
        seconds=Histogram(bounds=BOUNDS, counts=tuple(total.buckets), sum=total.nanoseconds / 1e9),
        failures_total=total.failures,
        recent_calls=sum(recent),
        recent_p50_seconds=quantile(recent, 0.5),
        recent_p99_seconds=quantile(recent, 0.99),
    )
