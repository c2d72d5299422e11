"""From a state to the bytes of /metrics, rendered once per state."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator

from agent.state import AgentState
from exporters.collectors import COLLECTORS, MOSTLY_BASE
from exporters.text import Text

PACKED_AT_ONCE = 1 << 15  # bytes: a quarter of a millisecond's work
PACKED_ON = 8  # renderings: where somebody has asked for gzip, it is made with so many more, not when it is asked for
_GZIP_BITS = 31  # zlib's word for gzip's header


class Exposition:
    """Keeps the text of the last state, plain and compressed, so that many scrapers cost one rendering. ``detail``: of
    the families that are on the second page.

    Rendering goes in steps; what is kept is always of one state, and changes with the last of them.
    """

    def __init__(self, *, detail: bool = False) -> None:
        self._text = Text(detail=detail)
        self._collectors = COLLECTORS if detail else MOSTLY_BASE
        self._state: AgentState | None = None
        self._plain = b""
        self._packed: bytes | None = None
        self._packs = 0  # so many more

    def render(self, state: AgentState, *, compressed: bool) -> bytes:
        """Return the exposition of ``state``."""
        for _ in self.steps(state, compressed=compressed):
            pass
        return self.last(compressed=compressed)

    def steps(self, state: AgentState, *, compressed: bool) -> Iterator[None]:
        """Render ``state`` in pieces of a millisecond or two. One at a time: the next begins when this has ended."""
        plain, packed = self._plain, self._packed
        if state is not self._state:
            text = yield from self._text.steps(collect(state) for collect in self._collectors)
            plain, packed = text.encode(), None
            yield
        self._packs = PACKED_ON if compressed else max(0, self._packs - 1)
        if packed is None and self._packs:
            packed = yield from _packed(plain)
        self._plain, self._packed, self._state = plain, packed, state

    def last(self, *, compressed: bool) -> bytes:
        """Return what was rendered last."""
        if not compressed:
            return self._plain
        self._packs = PACKED_ON
        if self._packed is None:
            self._packed = zlib.compress(self._plain, level=1, wbits=_GZIP_BITS)
        return self._packed


def _packed(plain: bytes) -> Generator[None, None, bytes]:
    """Compress in pieces; return the whole."""
    packer = zlib.compressobj(level=1, wbits=_GZIP_BITS)
    view, parts = memoryview(plain), []
    for start in range(0, len(plain), PACKED_AT_ONCE):
        parts.append(packer.compress(view[start : start + PACKED_AT_ONCE]))
        yield
    parts.append(packer.flush())
    return b"".join(parts)
