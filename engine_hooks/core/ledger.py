"""Counts block references where they change: one side of the conservation law.

Every reference on a KV block is taken by ``get_new_blocks`` or ``touch`` and given back by ``free_blocks`` (or
``unpin_blocks``). The sum of what was taken must equal what the block tables explain; the difference is what has
leaked (above zero) or was freed too often (below). Only this pool object is wrapped, not its class, so that
nothing else in the process changes.

``get_new_blocks`` runs sixteen times a step where 256 requests run, and is not wrapped for counting: each block that
it takes is missing from the free queue, whose length the pool knows, and what else changes that length is counted.
"""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from time import perf_counter
from typing import Any

from engine_hooks.core.buckets import BLOCK_SECONDS, Buckets
from engine_hooks.core.pins import Block
from engine_hooks.core.pool_view import PoolView
from engine_hooks.guard import Guard

_ref_cnt = attrgetter("ref_cnt")
_block_id = attrgetter("block_id")
_is_null = attrgetter("is_null")
_SEQUENCES = (list, tuple)


def _first_parameter(function: Callable[..., Any]) -> str:
    return next(iter(inspect.signature(function).parameters))


class ReferenceLedger:
    """Running count of the references on one pool's blocks, the null block aside.

    ``references``: the count; a block that is missing from the free queue although nobody has a reference on it counts
    as one. ``new``: blocks that left the free queue for ``get_new_blocks`` so far, ``revived``: for ``touch``, and
    ``returned``: those that came back to it. All are exact at any moment, and O(1).

    ``new_seconds``: how long the calls of ``get_new_blocks`` lasted while ``timing`` was set. ``changed``: while a set
    is there, the ids of all blocks whose references change are added to it; the audit uses it to tell which blocks
    stood still. Both need a wrapper that is there only as long. ``seconds``: what the counting has cost, by the wall.
    All on the engine's thread.
    """

    HOOK = "ledger"

    def __init__(self, view: PoolView, guard: Guard) -> None:
        self._view = view
        self._guard = guard
        self._nulls = view.may_hold_nulls
        self._several = view.several
        self._all_ours = not self._nulls and not self._several
        self._pool = view.pool
        self._free = view.pool.get_num_free_blocks
        self._plain = view.pool.get_new_blocks
        self._wrapper: Callable[..., Any] | None = None  # until installed
        self._changed: set[int] | None = None
        self._timing = False
        self._moved = self.recount()  # references by all ways but get_new_blocks
        self._queued = self._free()  # what the free queue would have without get_new_blocks
        self.revived = self.returned = 0
        self.new_seconds = Buckets(BLOCK_SECONDS)
        self.seconds = 0.0

    @property
    def new(self) -> int:
        """Blocks taken by ``get_new_blocks`` so far."""
        return int(self._queued - self._free())

    @property
    def references(self) -> int:
        """The count now."""
        return self._moved + self.new

    @references.setter
    def references(self, value: int) -> None:
        self._moved += value - self.references

    def withdrawn(self, blocks: int) -> None:
        """Note that so many free blocks have left the free queue, and nobody has taken them; below zero: come back."""
        self._queued -= blocks

    @property
    def changed(self) -> set[int] | None:
        """Ids of the blocks whose references have changed since a set was put here."""
        return self._changed

    @changed.setter
    def changed(self, ids: set[int] | None) -> None:
        self._changed = ids
        self._fit()

    @property
    def timing(self) -> bool:
        """Whether calls of ``get_new_blocks`` are timed now."""
        return self._timing

    @timing.setter
    def timing(self, on: bool) -> None:
        self._timing = on
        self._fit()

    def _fit(self) -> None:
        """Have the wrapper around ``get_new_blocks`` there while it is needed: not deleted otherwise, but replaced.

        An object whose attributes come and go loses what the interpreter knows about it.
        """
        if self._wrapper is None:
            return
        needed = self._timing or self._changed is not None
        present = self._pool.get_new_blocks
        if present is self._wrapper:
            if not needed:
                self._pool.get_new_blocks = self._plain
        elif needed:
            if present is not self._plain:  # another has wrapped it since, and ours may be inside
                self._plain, self._wrapper = present, self._taking_new(present)
            self._pool.get_new_blocks = self._wrapper

    def recount(self) -> int:
        """Sum the reference counts of all blocks: O(capacity), for start-up and tests."""
        return sum(map(_ref_cnt, (b for b in self._view.pool.blocks if not b.is_null)))

    def net(self) -> int:
        """References that nothing explains: 0 on a sound engine, > 0 leaked or lost, < 0 freed too often."""
        copies = self._view.pending_copies()
        return self.references + copies - self._view.explained_references()

    def install(self) -> None:
        """Wrap the pool's methods. The originals run first, and their result and exceptions pass untouched."""
        pool = self._pool
        self._plain = pool.get_new_blocks
        self._wrapper = self._taking_new(self._plain)
        pool.get_new_blocks = self._plain
        self._fit()
        pool.touch = self._touching(pool.touch)
        for name in ("free_blocks", "unpin_blocks"):
            if hasattr(pool, name):
                setattr(pool, name, self._giving_back(getattr(pool, name)))
        for manager in self._view.managers:
            for name in ("take_pending_cow_copies", "take_host_cow_copies"):  # the second: of host pages, for HiSparse
                if hasattr(manager, name):
                    setattr(manager, name, self._draining_copies(getattr(manager, name)))

    # -- get_new_blocks ------------------------------------------------------------------------------------

    def _taking_new(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Time new blocks and note their ids; none of them is a null block."""
        off = self._guard.off
        histogram = self.new_seconds
        bounds, counts = histogram.bounds, histogram.counts

        def get_new_blocks(num_blocks: int) -> Any:
            began = perf_counter()
            result = original(num_blocks)
            seconds = perf_counter() - began
            try:
                if self._wrapper is not get_new_blocks or (off and self.HOOK in off):
                    return result
                if self._timing:
                    counts[bisect_left(bounds, seconds)] += 1
                    histogram.sum += seconds
                if self._changed is not None:
                    self._changed.update(map(_block_id, result))
                self.seconds += perf_counter() - began - seconds
            except Exception as error:
                self._guard.note(self.HOOK, error)
            return result

        return get_new_blocks

    # -- touch and free_blocks -----------------------------------------------------------------------------

    def _ours(self, blocks: Sequence[Any]) -> Sequence[Block]:
        """The blocks of this pool among ``blocks``, the null block aside."""
        if blocks and isinstance(blocks[0], _SEQUENCES):  # touch() took one list per group up to 0.13
            blocks = [block for group in blocks for block in group]
        if self._several:
            blocks = [block for block in blocks if block.pool is self._pool]  # vLLM hands the others on
        if self._nulls and any(map(_is_null, blocks)):
            blocks = [block for block in blocks if not block.is_null]
        return blocks

    def _touching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        first = _first_parameter(original)
        free, off = self._free, self._guard.off

        def touch(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            touched: Iterable[Block] = args[0] if args else kwargs.pop(first)
            # A sequence in vLLM itself; a connector that passes a one-pass iterator is served as well.
            blocks = touched if isinstance(touched, _SEQUENCES) else list(touched)
            before = free()
            self.seconds += perf_counter() - began
            result = original(blocks, *args[1:], **kwargs)
            began = perf_counter()
            try:
                if not off or self.HOOK not in off:
                    self._count_touched(blocks, before)
            except Exception as error:
                self._guard.note(self.HOOK, error)
            self.seconds += perf_counter() - began
            return result

        return touch

    def _count_touched(self, blocks: Sequence[Block], free: int) -> None:
        revived = free - self._free()
        self._queued -= revived
        self.revived += revived
        ours = self._ours(blocks)
        self._moved += len(ours)
        if self._changed is not None:
            self._changed.update(map(_block_id, ours))

    def _giving_back(self, original: Callable[..., Any]) -> Callable[..., Any]:
        first = _first_parameter(original)
        off = self._guard.off

        def give_back(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            # vLLM passes a list or a one-pass iterator: the original gets what we can look at afterwards too.
            freed: Iterable[Block] = args[0] if args else kwargs.pop(first)
            blocks = freed if isinstance(freed, list) else list(freed)
            before: list[int] | None = None
            try:
                before = list(map(_ref_cnt, blocks))
            except Exception as error:
                self._guard.note(self.HOOK, error)
            self.seconds += perf_counter() - began
            result = original(blocks, *args[1:], **kwargs)
            began = perf_counter()
            try:
                if before is not None and (not off or self.HOOK not in off):
                    self._count_freed(blocks, before)
            except Exception as error:
                self._guard.note(self.HOOK, error)
            self.seconds += perf_counter() - began
            return result

        return give_back

    def _count_freed(self, blocks: Sequence[Block], before: list[int]) -> None:
        """Count references given back, and the blocks that must be in the free queue now: by their references.

        One that came to no queue is lost, and goes on counting.
        """
        ours = blocks if self._all_ours else self._ours(blocks)
        if ours is not blocks:
            kept = set(map(id, ours))
            before = [was for was, block in zip(before, blocks, strict=True) if id(block) in kept]
        after = list(map(_ref_cnt, ours))
        moved = returned = len(ours)
        if any(after) or before.count(1) != moved:  # most have one reference, and it is given back
            returned = after.count(0)
            if sum(before) - sum(after) != moved or returned != before.count(1) or min(after, default=0) < 0:
                # A block that came twice, that was free before, or that kept its reference.
                changes = {id(block): (was, now) for block, was, now in zip(ours, before, after, strict=True)}
                moved = sum(was - now for was, now in changes.values())
                returned = sum(was > 0 >= now for was, now in changes.values())
        self._moved -= moved
        self._queued += returned
        self.returned += returned
        if self._changed is not None:
            self._changed.update(map(_block_id, ours))

    def _draining_copies(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def drain() -> Any:
            pairs = original()
            if pairs:
                # Each copy took one reference by a bare ``ref_cnt += 1``; it is given back through free_blocks.
                self._moved += len(pairs)
            return pairs

        return drain
