"""For how long running requests that decode have got no token, in time in which their engine takes steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PERIOD = 1.0
SILENT_SECONDS = 30.0  # after so long a request is a zombie


class Silence:
    """Looked at once a second or so; a request is told by itself, since ids may come again. Bounded by what runs."""

    def __init__(self) -> None:
        self._looked: float | None = None
        self._seen: dict[str, tuple[Any, int, float]] = {}  # request, tokens, seconds of steps without a new one

    def look(self, running: Iterable[Any], now: float, *, stepped: bool = True) -> None:
        """Compare ``running`` with the last look. ``now``: monotonic seconds; ``stepped``: whether steps were taken
        since then.
        """
        # What a single step takes beyond two periods is the step's, not the requests' fault.
        passed = 0.0 if self._looked is None or not stepped else min(now - self._looked, 2 * PERIOD)
        self._looked = now
        seen: dict[str, tuple[Any, int, float]] = {}
        for request in running:
            known = self._seen.get(request.request_id)
            tokens = request.num_output_tokens
            same = known is not None and known[0] is request and known[1] == tokens and _decodes(request)
            seen[request.request_id] = (request, tokens, known[2] + passed if known is not None and same else 0.0)
        self._seen = seen

    def longer_than(self, seconds: float, running: Iterable[Any]) -> list[Any]:
        """Return those of ``running`` that have been silent for so long until now, the longest first."""
        here = set(map(id, running))
        found = [
            (idle, request)
            for request, tokens, idle in self._seen.values()
            if idle >= seconds and id(request) in here and request.num_output_tokens == tokens
        ]
        found.sort(key=lambda one: -one[0])
        return [request for _idle, request in found]

    def forget(self, request: Any) -> None:
        """Drop a request that has ended."""
        self._seen.pop(request.request_id, None)


def _decodes(request: Any) -> bool:
    return bool(request.num_computed_tokens >= request.num_prompt_tokens)
