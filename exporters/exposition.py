"""From a state to the bytes of /metrics, rendered once per state."""

from __future__ import annotations

import gzip

from agent.state import AgentState
from exporters.collectors import COLLECTORS
from exporters.text import Text


class Exposition:
    """Caches the text of the last state, plain and compressed, so that many scrapers cost one rendering."""

    def __init__(self) -> None:
        self._text = Text()
        self._state: AgentState | None = None
        self._plain = b""
        self._gzip: bytes | None = None

    def render(self, state: AgentState, *, compressed: bool) -> bytes:
        """Return the exposition of ``state``."""
        if state is not self._state:
            text = self._text.of(sample for collect in COLLECTORS for sample in collect(state))
            self._plain, self._gzip, self._state = text.encode(), None, state
        if not compressed:
            return self._plain
        if self._gzip is None:
            self._gzip = gzip.compress(self._plain, compresslevel=1)
        return self._gzip
