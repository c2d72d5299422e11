"""Who used a cached block last, when, whether it was ever found, and which block came before it.

Noted as requests give their blocks back: a request that found a block has it in its table then.

Kept only where the lever that reads it is allowed. One entry per block of the pool and no more; sessions are bounded.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine_hooks.core.levers.patch import Patch
from engine_hooks.core.levers.reuse import Reuse
from engine_hooks.core.marks import Marks, marks_of
from engine_hooks.core.pins import Block
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard

MAX_SESSIONS = 4096
MAX_TURNS = 8
NO_HASH = b""  # of a block before another that is not cached: nothing is found under it


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """One request that gave its blocks back at ``at`` (monotonic seconds). ``request``: the hash of its id, which is as
    long as a client likes.
    """

    marks: Marks
    at: float
    request: int


class Releases:
    """Filled by ``kv_cache_manager.free`` and ``pop_blocks_for_free``.

    By block id: ``hashes`` under which it was cached when it was used last, ``parents``, the hash of the block before
    it (None where it is the first, or its kind of layers needs none), and ``hits``, 1 where since it was cached another
    request than the one that filled it has given it back: exact for a free block, as all that found it are through.
    """

    HOOK = "releases"

    def __init__(self, view: SchedulerView, manager: Any, guard: Guard, clock: Callable[[], float]) -> None:
        self._view, self._clock = view, clock
        size = len(view.pool.blocks)
        # Three plain lists, as no object per block is made: 400,000 of them would be walked by the garbage collector.
        self._releases: list[Release | None] = [None] * size
        self.hashes: list[Any] = [None] * size
        self.parents: list[Any] = [None] * size
        self.hits = bytearray(size)
        self.reuse: Reuse | None = None
        table = next(iter(view.managers), None)
        self._hashed_tokens = int(getattr(view.scheduler, "hash_block_size", 0) or getattr(table, "block_size", 0))
        self._turns: OrderedDict[Marks, deque[Release]] = OrderedDict()
        for name in ("free", "pop_blocks_for_free"):
            if hasattr(manager, name):
                Patch(manager, name, self._note, guard, self.HOOK)

    def of(self, number: int, key: Any) -> Release | None:
        """Return who used a block last, while it is free and cached under ``key``; None where it isn't known."""
        return self._releases[number] if number < len(self._releases) and self.hashes[number] == key else None

    def turns(self, marks: Marks) -> tuple[Release, ...]:
        """Return a session's last turns, the latest last; empty where it is not known, or no longer."""
        return tuple(self._turns.get(marks, ()))

    def moved(self, number: int, other: int) -> None:
        """Note that block ``number`` has become block ``other``."""
        if max(number, other) < len(self._releases):
            for book in (self._releases, self.hashes, self.parents):
                book[other], book[number] = book[number], None
            self.hits[other] = self.hits[number]

    def _note(self, request: Any, *_: Any, **__: Any) -> None:
        release = Release(marks_of(request), self._clock(), hash(request.request_id))
        held = False
        for manager in self._view.managers:
            table = manager.req_to_blocks.get(request.request_id)
            if table:
                held = True
                self._note_table(table, release, chained=type(manager).__name__ == "FullAttentionManager")
        if not request.is_finished():
            return
        if not release.marks.session:
            if self.reuse is not None and self._hashed_tokens:
                full = request.num_prompt_tokens // self._hashed_tokens if held else 0
                self.reuse.note(release.marks.tenant, getattr(request, "block_hashes", ()), full, release.at)
        else:
            turns = self._turns.pop(release.marks, None) or deque(maxlen=MAX_TURNS)
            turns.append(release)
            self._turns[release.marks] = turns
            if len(self._turns) > MAX_SESSIONS:
                self._turns.popitem(last=False)

    def _note_table(self, table: list[Block], release: Release, *, chained: bool) -> None:
        releases, hashes, parents, hits = self._releases, self.hashes, self.parents, self.hits
        size, before, request = len(releases), None, release.request
        for block in table:
            own = block.block_hash
            number = block.block_id
            if own is not None and number < size:
                if hashes[number] is not own:  # the very object: the same prefix, computed anew, was not found
                    hits[number] = 0
                elif (last := releases[number]) is None or last.request != request:  # it comes twice if preempted
                    hits[number] = 1
                releases[number], hashes[number], parents[number] = release, own, before if chained else None
            before = NO_HASH if own is None else own
