"""Tenants' shares of the pool: each table entry counts as one block divided by the block's reference count.

Walking all tables takes tens of milliseconds where the pool is large, so it is done in slices between steps. What a
pass counts of tables that change meanwhile is a little old, never wrong by more than what changed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

SLICE_SECONDS = 0.00025
_CHUNK = 1024  # entries between two looks at the clock: about 0.06 ms
_EMPTY_COST = 16  # what going from one table to the next costs, in entries
_ref_cnt = attrgetter("ref_cnt")


class Share:
    """What one owner's tables hold: ``entries`` by reference count, and ``nulls``, placeholders of sliding windows."""

    __slots__ = ("entries", "nulls")

    def __init__(self) -> None:
        self.entries: Counter[int] = Counter()
        self.nulls = 0

    def blocks(self) -> float:
        """Return the share in blocks. An entry whose block has lost its reference counts as nothing."""
        return sum(count / references for references, count in self.entries.items() if references > 0)


class ShareWalk:
    """Walks the tables of ``managers`` again and again. ``owner``: whose a request id is, any hashable value."""

    def __init__(
        self,
        managers: tuple[Any, ...],
        owner: Callable[[str], Any],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        # A full-attention table never has placeholders; every other kind may.
        self._managers = [(manager, type(manager).__name__ != "FullAttentionManager") for manager in managers]
        self._owner = owner
        self._clock = clock
        self._shares: dict[Any, Share] = {}
        self._walk: Iterator[None] | None = None

    @property
    def under_way(self) -> bool:
        """Whether a pass has begun and not ended."""
        return self._walk is not None

    def advance(self, seconds: float) -> dict[Any, Share] | None:
        """Walk for about ``seconds``; return the shares by owner when a pass ends in this slice, else None."""
        until = self._clock() + seconds
        if self._walk is None:
            self._shares = {}
            self._walk = self._tables()
        for _ in self._walk:
            if self._clock() >= until:
                return None
        self._walk = None
        return self._shares

    def _tables(self) -> Iterator[None]:
        seen = 0
        for manager, sparse in self._managers:
            for request_id in list(manager.req_to_blocks):
                table = manager.req_to_blocks.get(request_id)  # a defaultdict: [] would create the entry
                if not table:
                    continue
                share = self._shares.setdefault(self._owner(request_id), Share())
                for start in range(0, len(table), _CHUNK):
                    part = table[start : start + _CHUNK]
                    size = len(part)
                    if sparse:
                        part = [block for block in part if not block.is_null]
                        share.nulls += size - len(part)
                    share.entries.update(map(_ref_cnt, part))
                    seen += size + _EMPTY_COST
                    if seen >= _CHUNK:
                        seen = 0
                        yield
