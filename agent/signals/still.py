"""For how long there has been work and no token was made."""

from __future__ import annotations

from agent.signals.types import Reading
from engine_hooks.detail import Detail


class Still:
    """Follows the tokens of an engine whose hooks do not say it themselves, or that has only a page."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self._tokens: int | None = None
        self._since: float | None = None
        self._peak: float | None = None  # of use, since tokens moved

    def take(self, now: float, reading: Reading, detail: Detail | None) -> float | None:
        """Return the seconds without a token; zero where tokens come or nothing is to do, None where it isn't known."""
        if detail is not None and detail.waiting is not None:
            return detail.waiting.stalled_seconds or 0.0
        tokens, use = _tokens(reading), reading.use_ratio
        # Without tokens a stall shows only where nothing runs.
        if (tokens is None and reading.running != 0) or (reading.running is None and reading.waiting is None):
            self.clear()
            return None
        moved = tokens != self._tokens or not (reading.running or reading.waiting) or self._since is None
        self._tokens = tokens
        # A long prompt takes blocks for a while before its first token counts. Up and down is no progress.
        rises = use is not None and (self._peak is None or use > self._peak)
        if moved or rises or self._since is None:
            self._since = now
            self._peak = use if moved else max(self._peak or 0.0, use or 0.0)
        return now - self._since


def _tokens(reading: Reading) -> int | None:
    known = [
        each for each in (reading.scheduled_total, reading.generated_total, reading.prompt_total) if each is not None
    ]
    return sum(known) if known else None
