"""Keep hot prefixes from being reused for a moment, again and again: an eviction preference, not a reservation."""

from __future__ import annotations

from collections import Counter
from typing import Any

from engine_hooks.core.levers.arguments import only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.free_queue import check_pool, is_free_and_cached, put_last
from engine_hooks.core.levers.patch import Patch
from engine_hooks.core.pins import Block
from engine_hooks.levers.base import Done, number, whole
from engine_hooks.levers.orders import Arguments

MAX_BLOCKS = 100
MAX_COUNTED = 10_000


class HoldHot:
    """Arguments: ``blocks`` at most (100), ``cycle_seconds`` (5), ``hold_milliseconds`` (300).

    While in force, hits on cached blocks are counted. Once a cycle those with the most, as far as they are free again,
    go to the back of the free queue, and are put there before each step for as long as they are held. They stay
    free: where all others are taken, they are taken as well. Undone by stopping; the order that it made stays.
    """

    NAME = "hold_hot"

    def __init__(self, context: LeverContext) -> None:
        check_pool(context.view.pool)
        self._context, self._pool = context, context.view.pool
        self._blocks, self._cycle, self._hold = MAX_BLOCKS, 5.0, 0.3
        self._hits: Counter[int] = Counter()
        self._held: list[tuple[Block, Any]] = []  # with the hash that they are held for
        self._next = self._until = 0.0
        self._cycles = self._total = 0
        self._patch: Patch | None = None

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return the limits that it would keep to."""
        blocks, cycle, hold = self._limits(arguments)
        return {"blocks": blocks, "cycle_seconds": cycle, "hold_seconds": hold}

    def apply(self, arguments: Arguments) -> Done:
        """Begin to count; the first hold is one cycle away."""
        effect = self.would(arguments)
        self._blocks, self._cycle, self._hold = self._limits(arguments)
        self._hits, self._held, self._cycles, self._total = Counter(), [], 0, 0
        self._next, self._until = self._context.clock() + self._cycle, 0.0
        self._patch = Patch(self._pool, "touch", self._count, self._context.guard, "lever_hold_hot")
        self._context.before_step.add(self.NAME, self._keep)
        return Done(effect, self._undo)

    def _undo(self) -> dict[str, int | float]:
        self._context.before_step.remove(self.NAME)
        if self._patch is not None:
            self._patch.remove()
        self._hits, self._held = Counter(), []
        return {"cycles": self._cycles, "held": self._total}

    def _count(self, blocks: Any, *_: Any, **__: Any) -> None:
        if not isinstance(blocks, list | tuple):
            return  # a one-pass iterator: looking would use it up
        for block in blocks:
            for one in block if isinstance(block, list | tuple) else (block,):  # one list per group up to 0.13
                if one.block_hash is not None and (one.block_id in self._hits or len(self._hits) < MAX_COUNTED):
                    self._hits[one.block_id] += 1

    def _keep(self) -> None:
        now = self._context.clock()
        if now >= self._next:
            self._begin_cycle(now)
        elif now >= self._until:
            return
        pool = self._pool
        still = [block for block, key in self._held if block.block_hash == key and is_free_and_cached(pool, block)]
        put_last(pool.free_block_queue, still)

    def _begin_cycle(self, now: float) -> None:
        self._next, self._until = now + self._cycle, now + self._hold
        free: list[Block] = []
        for block_id, _hits in self._hits.most_common():
            block = self._pool.blocks[block_id]
            if is_free_and_cached(self._pool, block):
                free.append(block)
                if len(free) == self._blocks:
                    break
        # A prefix is touched from its beginning: of equals, the later are the first to be let go.
        self._held = [(block, block.block_hash) for block in reversed(free)]
        self._hits = Counter()
        self._cycles += 1
        self._total += len(free)

    def _limits(self, arguments: Arguments) -> tuple[int, float, float]:
        only(arguments, "blocks", "cycle_seconds", "hold_milliseconds")
        return (
            whole(arguments, "blocks", 1, MAX_BLOCKS, MAX_BLOCKS),
            number(arguments, "cycle_seconds", 1.0, 60.0, 5.0),
            number(arguments, "hold_milliseconds", 10.0, 1000.0, 300.0) / 1000,
        )
