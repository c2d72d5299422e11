"""When a bundle is due: some time after what it is about, and never many of them in a short time. Pure.

What comes soon after a bundle waits for the next one, which has the half hour before it: nothing gets none.
"""

from __future__ import annotations

AFTER_SECONDS = 60.0  # what comes after an incident is in its bundle, too
BETWEEN_SECONDS = 600.0  # from one bundle to the next
MOST_REASONS = 8


class Incidents:
    """Gathers reasons; times are monotonic seconds."""

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self._due: float | None = None
        self._last: float | None = None

    def happened(self, reasons: tuple[str, ...], now: float) -> None:
        """Note what happened at ``now``."""
        if not reasons:
            return
        if self._due is None:
            self._due = now + AFTER_SECONDS
            if self._last is not None:
                self._due = max(self._due, self._last + BETWEEN_SECONDS)
        new = [reason for reason in reasons if reason not in self._reasons]
        self._reasons += new[: MOST_REASONS - len(self._reasons)]

    def due(self, now: float) -> str:
        """Return what the bundle that is due at ``now`` is about, once; empty where none is."""
        if self._due is None or now < self._due:
            return ""
        self._last = now
        return self.ended()

    def ended(self) -> str:
        """Return what a bundle that is to come would be about; nothing more comes after it."""
        why, self._reasons, self._due = "; ".join(self._reasons), [], None
        return why
