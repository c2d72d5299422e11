"""Several processes that speak for one engine: whom to believe.

vLLM with several API servers shows one series per process, each as that server last heard of it (vllm#28792: seven
times 0 and once the truth). SGLang shows one per tensor-parallel rank. The one that changed last is right; before
anything has changed, and among those that changed together, the one that says the most.
"""

from __future__ import annotations

from agent.sources.scrape.families import reading_of
from agent.sources.scrape.page import Row

_NEVER = float("-inf")


class Reporters:
    """Chooses for one engine, reading after reading."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], dict[str, float]] = {}
        self._changed: dict[tuple[str, ...], float] = {}

    def choose(self, kind: str, row: Row, now: float) -> dict[str, float]:
        """Return the engine's values by name. ``now``: seconds of any clock that only goes forward."""
        if not row.reporters:
            return row.base
        began = not self._seen
        changed = {}
        for reporter, values in row.reporters.items():
            if reporter not in self._seen:
                changed[reporter] = _NEVER if began else now
            else:
                changed[reporter] = now if values != self._seen[reporter] else self._changed[reporter]
        self._seen, self._changed = dict(row.reporters), changed

        def rank(reporter: tuple[str, ...]) -> tuple[float, ...]:
            said = reading_of(kind, row.reporters[reporter])
            return changed[reporter], said.usage or 0.0, said.running or 0.0, said.waiting or 0.0

        return row.base | row.reporters[max(row.reporters, key=rank)]
