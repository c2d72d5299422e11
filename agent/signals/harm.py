"""Harm: in the last minute something waited for memory, was preempted or was refused. None where it can't be told."""

from __future__ import annotations

from agent.signals.types import Reading
from engine_hooks.detail import Detail

HARM_SECONDS = 60.0
FULL = 0.95  # of the pool: what waits above it on a page without hooks waits for memory
FOR_MEMORY = ("memory", "preempted", "deferred_frees", "delayed_frees")


class Harm:
    """Remembers when harm was last seen, and since when it would have been."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all: after a gap or a restart nobody knows."""
        self._before: Reading | None = None
        self._last: float | None = None
        self._since: float | None = None

    def take(self, now: float, reading: Reading, detail: Detail | None) -> bool | None:
        """Return whether there was harm in the last minute."""
        harmed = self._harmed(reading, detail)
        self._before = reading
        if harmed:
            self._last = now
        if self._last is not None and now - self._last <= HARM_SECONDS:
            return True
        if harmed is None:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        # A minute without harm has to be seen to be known.
        return False if now - self._since >= HARM_SECONDS else None

    def _harmed(self, reading: Reading, detail: Detail | None) -> bool | None:
        before = self._before
        told = [
            _more(reading.preempted_total, before.preempted_total if before else None),
            _more(reading.refused_total, before.refused_total if before else None),
            None if reading.waiting_refused is None else reading.waiting_refused > 0,
        ]
        if detail is not None and detail.waiting is not None:
            reasons = detail.waiting.reasons
            told.append(any(reasons.get(reason) for reason in FOR_MEMORY))
        elif reading.waiting is not None and reading.use_ratio is not None:
            told.append(reading.waiting > 0 and reading.use_ratio > FULL)
        known = [each for each in told if each is not None]
        return any(known) if known else None


def _more(now: int | None, before: int | None) -> bool | None:
    if now is None:
        return None
    return before is not None and now > before
