"""Make the KV pool smaller while it serves, and give its memory back where the platform can; undone by growing back."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from engine_hooks.core.compaction.checks import check_engine, check_now
from engine_hooks.core.compaction.compactor import Compactor, Shrinking
from engine_hooks.core.compaction.counts import LEVER, CompactionObserver, Counts
from engine_hooks.core.compaction.workers import Workers, WorkersError
from engine_hooks.core.levers.arguments import one_of, only, priority_of
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.releases import MAX_TURNS
from engine_hooks.core.levers.worth import IDLE_PRIORITY, KEPT, Worth
from engine_hooks.core.pins import Block
from engine_hooks.levers.base import Done, RefusedError, number, whole
from engine_hooks.levers.orders import Arguments
from engine_hooks.worker import compaction as in_worker

MOST = 1 << 40


class Compact:
    """Arguments: ``to_blocks``, what the pool is to have, or ``free_bytes``, what is to come free on all workers; and
    which cached blocks are worth a copy: ``idle_seconds`` (300), ``turns`` (2) and ``priority``, as for evict_idle.

    Held blocks above the line move below it, a slice between two steps at a time, and then nothing is above it: it goes
    offline, and its pages are given back beside the steps. The answer tells what is begun; the rest is in the engine's
    detail. While it is in force blocks come back by themselves before a request is refused any, or few are free. Undone
    by bringing all back. Another size takes the place of the one in force: nothing comes back only to go again.
    """

    NAME = LEVER
    REPLACES = True

    def __init__(self, context: LeverContext) -> None:
        check_engine(context)
        self._context, self._pool = context, context.view.pool
        self._workers = Workers(context.engine.model_executor)
        counts = getattr(context.observers.get(CompactionObserver.SECTION), "counts", None) or Counts()
        # Who used a block last is noted only where this lever may be pulled.
        self._releases = context.releases() if context.allows(self.NAME) else None
        self._compactor = Compactor(context, self._workers, counts, self._moved)

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return what would be moved, lost and freed. Asks the workers, and looks at every block."""
        return self._plan(arguments)[0]

    def apply(self, arguments: Arguments) -> Done:
        """Begin."""
        effect, shrinking, hinders = self._plan(arguments)
        effect |= self._totals()  # what it does is what comes on top of them
        if shrinking is None:
            self._compactor.grow(int(effect["offline_blocks"]))
        else:
            self._compactor.shrink(shrinking, int(effect["block_bytes"]), releases=not hinders)
        effect["orders_total"] = order = self._compactor.counts.orders
        why = f"relocated, nothing released: {hinders}" if hinders else ""
        return Done(effect, functools.partial(self._undo, order), why)

    def _undo(self, order: int) -> dict[str, int | float]:
        if self._compactor.counts.orders != order:
            return {}  # another size was ordered since: there is nothing left of this one
        offline, released = self._compactor.tail.count, self._compactor.counts.released_bytes
        self._compactor.grow(0)
        return {"offline_blocks": offline, "released_bytes": released or 0, **self._totals()}

    def _totals(self) -> dict[str, int | float]:
        counts = self._compactor.counts
        return {"moved_blocks_total": counts.moved + counts.moved_idle, "dropped_blocks_total": counts.dropped}

    def _plan(self, arguments: Arguments) -> tuple[dict[str, int | float], Shrinking | None, str]:
        """Return the effect, how to go about it, and why no page can be given back, if so.

        A pool that is smaller than asked for by now, as after another order, grows: then there is no such way.
        """
        only(arguments, "to_blocks", "free_bytes", "idle_seconds", "turns", "priority")
        which = one_of(arguments, "to_blocks", "free_bytes")
        worth = functools.partial(
            self._worth,
            idle_seconds=number(arguments, "idle_seconds", 0.0, 86_400.0, 300.0),
            turns=whole(arguments, "turns", 0, MAX_TURNS, 2),
            priority=priority_of(arguments),
        )
        self._check()
        workers = self._look()
        block_bytes = sum(row["block_bytes"] for row in workers)
        hinders = next((row["releases"] for row in workers if row["releases"]), "")
        capacity, last = self._context.view.capacity(), len(self._pool.blocks) - 1
        if which == "to_blocks":
            target = whole(arguments, "to_blocks", 1, MOST)
        else:
            target = last - -(-whole(arguments, "free_bytes", 1, 1 << 62) // max(1, block_bytes))
        self._check_target(target, capacity, last)
        held = self._context.view.held()
        effect: dict[str, int | float] = {
            "before_blocks": capacity,
            "after_blocks": target,
            "offline_blocks": last - target,
            "held_blocks": held,
            "block_bytes": block_bytes,
            "workers": len(workers),
            "release_bytes": 0 if hinders else (last - target) * block_bytes,
        }
        if target > capacity:
            return effect, None, hinders
        least = held + 2 * self._compactor.reserve(target)
        if target < least:
            raise RefusedError(
                "unsafe",
                f"pressure: of {last:,} blocks {target:,} would be left; with {held:,} held it must be {least:,} at "
                "least",
            )
        line = target + 1
        above = [block for block in self._pool.blocks[line:] if not self._compactor.tail.flags[block.block_id]]
        cached = [block for block in above if not block.ref_cnt and block.block_hash is not None]
        kept = sum(worth(cached)) if cached else 0
        below = len([1 for block in self._pool.blocks[1:line] if block.block_hash is not None and not block.ref_cnt])
        room = target - held
        effect["move_blocks"] = sum(block.ref_cnt > 0 for block in above)
        # Where the free queue would have them reused soon they are lost all the same.
        effect["move_idle_blocks_at_most"] = min(kept, room)
        effect["drop_idle_blocks_at_least"] = max(len(cached) - kept, len(cached) + below - room)
        return (
            effect,
            Shrinking(line=line, worth=worth, in_force=self._context.in_force, sweep=len(above), at=last),
            hinders,
        )

    def _check_target(self, target: int, capacity: int, last: int) -> None:
        """Refuse what would change nothing, and what there is no such pool for; ``last``: what it came up with."""
        if target < 0:
            raise RefusedError("unsafe", f"pressure: that is more than the {last:,} blocks that the pool came up with")
        if target >= last:
            back = "" if capacity == last else f" and {capacity:,} now; all come back when this is undone"
            raise RefusedError("nothing", f"the pool came up with {last:,} blocks{back}")
        if target == capacity and not self._compactor.under_way:
            raise RefusedError("nothing", f"the pool has {capacity:,} blocks now, of {last:,} that it came up with")

    def _check(self) -> None:
        check_now(self._context, self._context.in_force())
        if self._context.taps.refusals:
            raise RefusedError("unsafe", "pressure: a request waits that was refused memory")
        if self._compactor.between.broken:
            raise RefusedError("unsafe", "this engine is about to end")

    def _look(self) -> list[dict[str, Any]]:
        try:
            rows = self._workers.ask(in_worker.look)
        except WorkersError as error:
            raise RefusedError("unsupported", str(error)) from None
        if any(row["blocks"] != len(self._pool.blocks) for row in rows):
            raise RefusedError("unsupported", "the workers' caches have another number of blocks than the pool")
        return rows

    def _worth(self, blocks: Sequence[Block], **how: Any) -> list[bool]:
        """Whether each of these free cached blocks is worth a copy: whether somebody is likely to ask for it again."""
        pool = self._pool
        if not hasattr(pool.cached_block_hash_to_block, "get_one_block"):
            return [True] * len(blocks)
        return [kind in (IDLE_PRIORITY, KEPT) for kind in Worth(self._context, self._releases, **how).classes(blocks)]

    def _moved(self, source: Block, copy: Block) -> None:
        if self._releases is not None:
            self._releases.moved(source.block_id, copy.block_id)
