"""What has failed on this node for want of memory or of a device: kept when the process that failed is gone."""

from __future__ import annotations

from collections import Counter

import msgspec

from agent.oom.judge import Judgement, judge
from engine_hooks.allocator import CUDA_ERRORS, MEMORY, OOM, MemoryEvent

MAX_FAILURES = 64
MAX_OWN = 16  # of those, of processes that belong to no engine: these must not push engines' failures out
MAX_COUNTED = 128  # series; there are a few per engine
MAX_COUNTED_OWN = 32  # of those, of processes that belong to no engine
SETTLED_SECONDS = 3.0  # an exception follows what the observer tells at once
_KINDS = (OOM, MEMORY, *CUDA_ERRORS)
_OTHER = "other"


class Failure(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event of one process. ``engine``: of its engine, or empty; ``process``: the name of one that has none.

    ``judgement``: for failed allocations, None for errors of the device.
    """

    engine: str
    process: str
    role: str
    rank: int
    pid: int
    event: MemoryEvent
    judgement: Judgement | None


class FailureCount(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How often something has failed since the agent started. ``cause``: of a failed allocation, or empty."""

    engine: str
    process: str
    kind: str
    cause: str
    count: int


class Who(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whose event it is; ``instance`` is its process's."""

    instance: str
    engine: str
    process: str
    role: str
    rank: int
    pid: int


class FailureLog:
    """The last ``MAX_FAILURES``; the same event told again is the same failure. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._failures: dict[tuple[str, int], Failure] = {}
        self._counted: dict[tuple[str, int], int] = {}
        self._first: dict[tuple[str, int], float] = {}
        self._counts: Counter[tuple[str, str, str, str]] = Counter()

    def add(self, who: Who, event: MemoryEvent, now: float) -> None:
        """Take an event of ``who``; its number in that process tells whether it is known."""
        key = (who.instance, event.sequence)
        known = self._failures.pop(key, None)
        if known is None or known.event != event:
            known = Failure(
                engine=who.engine,
                process=who.process,
                role=who.role,
                rank=who.rank,
                pid=who.pid,
                event=event,
                judgement=judge(event.message, event) if event.kind in (OOM, MEMORY) else None,
            )
        self._failures[key] = known
        self._first.setdefault(key, now)
        own = [key for key, failure in self._failures.items() if failure.process]
        for oldest in own[:-MAX_OWN]:
            self._drop(oldest)
        while len(self._failures) > MAX_FAILURES:
            self._drop(next(iter(self._failures)))

    def _drop(self, oldest: tuple[str, int]) -> None:
        self._count(oldest)
        del self._failures[oldest], self._first[oldest], self._counted[oldest]

    def failures(self) -> tuple[Failure, ...]:
        """Return what is kept, the newest first."""
        return tuple(sorted(self._failures.values(), key=lambda failure: -failure.event.at))

    def counts(self, now: float) -> tuple[FailureCount, ...]:
        """Return how often each kind of failure has happened, by engine or process.

        An event that is told in two parts counts when its message is there, or will not come: its cause is known then.
        """
        for key, failure in self._failures.items():
            if failure.event.message or now - self._first[key] >= SETTLED_SECONDS:
                self._count(key)
        return tuple(
            FailureCount(engine=engine, process=process, kind=kind, cause=cause, count=count)
            for (engine, process, kind, cause), count in sorted(self._counts.items())
        )

    def _count(self, key: tuple[str, int]) -> None:
        failure = self._failures[key]
        more = failure.event.count - self._counted.get(key, 0)
        self._counted[key] = failure.event.count
        if more <= 0:
            return
        series = _series(failure)
        if series not in self._counts:
            own = sum(bool(process) for _, process, *_ in self._counts)
            if series[1] and own >= MAX_COUNTED_OWN:
                series = ("", _OTHER, *series[2:])
            elif len(self._counts) >= MAX_COUNTED:
                series = (_OTHER, "", *series[2:])
        self._counts[series] += more


def _series(failure: Failure) -> tuple[str, str, str, str]:
    kind = failure.event.kind if failure.event.kind in _KINDS else _OTHER
    cause = failure.judgement.cause if failure.judgement is not None else ""
    return failure.engine, failure.process, kind, cause
