"""Counts block references where they change: one side of the conservation law.

Every reference on a KV block is taken by ``get_new_blocks`` or ``touch`` and given back by ``free_blocks`` (or
``unpin_blocks``). The sum of what was taken must equal what the block tables explain; the difference is what has
leaked (above zero) or was freed too often (below). Only this pool object is wrapped, not its class, so that
nothing else in the process changes.
"""

from __future__ import annotations

import inspect
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from engine_hooks.core.buckets import BLOCK_SECONDS, Buckets
from engine_hooks.core.pins import Block
from engine_hooks.core.pool_view import PoolView, count_nulls
from engine_hooks.guard import Guard

_TIMED_CALLS = 17  # a prime: calls come in patterns, and not always the same one may be timed
_ref_cnt = attrgetter("ref_cnt")
_block_id = attrgetter("block_id")


def _first_parameter(function: Callable[..., Any]) -> str:
    return next(iter(inspect.signature(function).parameters))


class ReferenceLedger:
    """Running count of the references on one pool's blocks, the null block aside.

    ``references``: the count. ``changed``: while a set is there, the ids of all blocks whose references change
    are added to it; the audit uses it to tell which blocks stood still. ``new``: blocks taken by ``get_new_blocks`` so
    far, and ``new_seconds`` how long these calls lasted. ``seconds``: what the counting has cost, from one call in
    seventeen. All on the engine's thread.
    """

    HOOK = "ledger"

    def __init__(self, view: PoolView, guard: Guard) -> None:
        self._view = view
        self._guard = guard
        self._nulls = view.may_hold_nulls
        self._several = view.several
        self.references = self.recount()
        self.changed: set[int] | None = None
        self.new = 0
        self.new_seconds = Buckets(BLOCK_SECONDS)
        self.seconds = 0.0
        self._calls = 0

    def recount(self) -> int:
        """Sum the reference counts of all blocks: O(capacity), for start-up and tests."""
        return sum(map(_ref_cnt, (b for b in self._view.pool.blocks if not b.is_null)))

    def net(self) -> int:
        """References that nothing explains: 0 on a sound engine, > 0 leaked, < 0 freed too often."""
        copies = self._view.pending_copies()
        return self.references + copies - self._view.explained_references()

    def install(self) -> None:
        """Wrap the pool's methods. The originals run first, and their result and exceptions pass untouched."""
        pool = self._view.pool
        pool.get_new_blocks = self._taking_new(pool.get_new_blocks)
        pool.touch = self._touching(pool.touch)
        for name in ("free_blocks", "unpin_blocks"):
            if hasattr(pool, name):
                setattr(pool, name, self._giving_back(getattr(pool, name)))
        for manager in self._view.managers:
            for name in ("take_pending_cow_copies", "take_host_cow_copies"):  # the second: of host pages, for HiSparse
                if hasattr(manager, name):
                    setattr(manager, name, self._draining_copies(getattr(manager, name)))

    def _timed_count(self, blocks: Sequence[Block], sign: int) -> None:
        if self.HOOK in self._guard.off:
            return
        self._calls += 1
        if self._calls % _TIMED_CALLS:
            self._count(blocks, sign)
            return
        began = time.thread_time()
        self._count(blocks, sign)
        self.seconds += _TIMED_CALLS * (time.thread_time() - began)

    def _count(self, blocks: Sequence[Block], sign: int) -> None:
        if blocks and isinstance(blocks[0], list | tuple):  # touch() took one list per group up to 0.13
            for group in blocks:
                self._count(group, sign)
            return
        if self._several:
            blocks = [block for block in blocks if block.pool is self._view.pool]  # vLLM hands the others on
        number = len(blocks)
        if self._nulls:
            number -= count_nulls(blocks)
        self.references += sign * number
        if self.changed is not None:
            self.changed.update(map(_block_id, blocks))

    def _taking_new(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Count and time new blocks: sixteen calls a step where 256 requests run, so all is done here, in one wrapper.

        None of them is a null block.
        """
        off = self._guard.off
        histogram, timer = self.new_seconds, time.perf_counter
        bounds, counts = histogram.bounds, histogram.counts

        def get_new_blocks(num_blocks: int) -> Any:
            began = timer()
            result = original(num_blocks)
            seconds = timer() - began
            try:
                if off and self.HOOK in off:
                    return result
                number = len(result)
                self.references += number
                self.new = new = self.new + number
                counts[bisect_left(bounds, seconds)] += 1
                histogram.sum += seconds
                if self.changed is not None:
                    self.changed.update(map(_block_id, result))
                if not new % _TIMED_CALLS:  # it stands for the calls before it, and for what the clock costs
                    self.seconds += _TIMED_CALLS * (timer() - began - seconds)
            except Exception as error:
                self._guard.note(self.HOOK, error)
            return result

        return get_new_blocks

    def _touching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        first = _first_parameter(original)

        def touch(*args: Any, **kwargs: Any) -> Any:
            touched: Iterable[Block] = args[0] if args else kwargs.pop(first)
            # A sequence in vLLM itself; a connector that passes a one-pass iterator is served as well.
            blocks = touched if isinstance(touched, list | tuple) else list(touched)
            result = original(blocks, *args[1:], **kwargs)
            try:
                self._timed_count(blocks, 1)
            except Exception as error:
                self._guard.note(self.HOOK, error)
            return result

        return touch

    def _giving_back(self, original: Callable[..., Any]) -> Callable[..., Any]:
        first = _first_parameter(original)

        def give_back(*args: Any, **kwargs: Any) -> Any:
            # vLLM passes a list or a one-pass iterator: the original gets what we can look at afterwards too.
            freed: Iterable[Block] = args[0] if args else kwargs.pop(first)
            blocks = freed if isinstance(freed, list) else list(freed)
            result = original(blocks, *args[1:], **kwargs)
            try:
                self._timed_count(blocks, -1)
            except Exception as error:
                self._guard.note(self.HOOK, error)
            return result

        return give_back

    def _draining_copies(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def drain(*args: Any, **kwargs: Any) -> Any:
            pairs = original(*args, **kwargs)
            # Each copy took one reference by a bare ``ref_cnt += 1``; it is given back through free_blocks.
            self.references += len(pairs)
            return pairs

        return drain
