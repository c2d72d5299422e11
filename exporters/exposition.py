"""From a state to the bytes of /metrics, rendered once per state, and not for every state where many ask."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from itertools import chain

from agent.state import AgentState
from exporters.collectors import COLLECTORS, MOSTLY_BASE
from exporters.text import Text

SHARE = 0.05  # of a core that answers to scrapes may take over time
AHEAD_SECONDS = 0.5  # of that core that may be taken at once: some fifty renderings of a large node
OLDEST_SECONDS = 1.0  # a text is never older, whatever it costs

Clock = Callable[[], float]


class Exposition:
    """Caches the text of the last state, plain and compressed, so that many scrapers cost one rendering. ``detail``:
    of the families that are on the second page.
    """

    def __init__(self, *, detail: bool = False) -> None:
        self._text = Text(detail=detail)
        self._collectors = COLLECTORS if detail else MOSTLY_BASE
        self._state: AgentState | None = None
        self._plain = b""
        self._gzip: bytes | None = None

    def render(self, state: AgentState, *, compressed: bool) -> bytes:
        """Return the exposition of ``state``."""
        if state is not self._state:
            # Not a generator around theirs: each sample would pass through one more frame.
            text = self._text.of(chain.from_iterable(collect(state) for collect in self._collectors))
            self._plain, self._gzip, self._state = text.encode(), None, state
        return self.last(compressed=compressed)

    def last(self, *, compressed: bool) -> bytes:
        """Return what was rendered last."""
        if not compressed:
            return self._plain
        if self._gzip is None:
            self._gzip = gzip.compress(self._plain, compresslevel=1)
        return self._gzip


class Page:
    """What scrapers get: the state as it is when they ask.

    Engines under load change it a hundred times a second. Who asks fifty times a second must not have it put together
    and rendered as often: when the time for that is used up, the answer is the last one, a second old at the most.
    """

    def __init__(
        self,
        snapshot: Callable[[], AgentState],
        *,
        detail: bool = False,
        clock: Clock = time.monotonic,
        spent: Clock = time.thread_time,
    ) -> None:
        self._snapshot, self._clock, self._spent = snapshot, clock, spent
        self._exposition = Exposition(detail=detail)
        self._budget, self._counted = AHEAD_SECONDS, clock()
        self._rendered: float | None = None

    def get(self, *, compressed: bool) -> bytes:
        """Return the bytes, gzip's where they are to be ``compressed``."""
        now = self._clock()
        self._budget = min(AHEAD_SECONDS, self._budget + SHARE * (now - self._counted))
        self._counted = now
        began = self._spent()
        fresh = self._rendered is None or self._budget > 0 or now - self._rendered >= OLDEST_SECONDS
        if fresh:
            self._rendered = now
            body = self._exposition.render(self._snapshot(), compressed=compressed)
        else:
            body = self._exposition.last(compressed=compressed)
        self._budget -= self._spent() - began
        return body
