"""When a bundle is due: some time after what it is about, and never many of them in a short time. Pure."""

from __future__ import annotations

AFTER_SECONDS = 60.0  # what comes after an incident is in its bundle, too
BETWEEN_SECONDS = 600.0  # from one bundle to the next
MOST_REASONS = 8


class Incidents:
    """Gathers reasons; times are monotonic seconds. ``withheld``: those that came too soon after the last bundle."""

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self._due: float | None = None
        self._last: float | None = None
        self.withheld = 0

    def happened(self, reasons: tuple[str, ...], now: float) -> None:
        """Note what happened at ``now``."""
        if not reasons:
            return
        if self._due is None:
            if self._last is not None and now - self._last < BETWEEN_SECONDS:
                self.withheld += len(reasons)
                return
            self._due, self._last = now + AFTER_SECONDS, now
        new = [reason for reason in reasons if reason not in self._reasons]
        self._reasons += new[: MOST_REASONS - len(self._reasons)]

    def due(self, now: float) -> str:
        """Return what the bundle that is due at ``now`` is about, once; empty where none is."""
        return self.ended() if self._due is not None and now >= self._due else ""

    def ended(self) -> str:
        """Return what a bundle that is to come would be about; nothing more comes after it."""
        why, self._reasons, self._due = "; ".join(self._reasons), [], None
        return why
