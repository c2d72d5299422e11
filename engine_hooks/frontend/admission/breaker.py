"""The fast breaker: rate and concurrency of one API server, decided in the process, without the agent."""

from __future__ import annotations

from collections.abc import Callable

from engine_hooks.frontend.admission.rules import Rules


class FastBreaker:
    """A bucket of tokens and a count. ``clock``: monotonic seconds. Only the event loop's thread uses it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens = 0.0
        self._at = clock()
        self._rate: float | None = None
        self._burst = 0
        self.inside = 0

    def enter(self, rules: Rules) -> str | None:
        """Take a place, or say what is exhausted: ``rate`` or ``in_flight``. Only who got a place leaves."""
        if rules.in_flight is not None and self.inside >= rules.in_flight:
            return "in_flight"
        if rules.rate is not None and not self._take(rules.rate, rules.burst):
            return "rate"
        self.inside += 1
        return None

    def leave(self) -> None:
        """Give the place back."""
        self.inside -= 1

    def _take(self, rate: float, burst: int) -> bool:
        now = self._clock()
        if (rate, burst) != (self._rate, self._burst):
            self._rate, self._burst, self._tokens = rate, burst, float(burst)  # new limits begin full
        else:
            self._tokens = min(float(burst), self._tokens + (now - self._at) * rate)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
