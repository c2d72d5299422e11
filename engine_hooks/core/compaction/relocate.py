"""Moves blocks between two steps, with nothing in flight: all of a slice, or none.

First the data are copied, on all ranks: the copies are free blocks that nobody reads, so that up to here nothing has
happened but that what they had cached is forgotten. Then the tables are rewritten, in the workers and in the scheduler.
That is the point of no return: an engine that fails behind it might read a block that is no longer its request's, so
that it must not take another step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine_hooks.core.compaction.plan import Pairs, Place
from engine_hooks.core.compaction.tail import Tail
from engine_hooks.core.compaction.workers import Workers
from engine_hooks.core.levers.free_queue import put_before
from engine_hooks.core.pins import Block, Pool
from engine_hooks.worker import compaction as in_worker


class Relocation:
    """``moved``: called with each block and its copy, for books that are kept by block. ``fence``: told why no step may
    follow, before the first table is rewritten, and an empty text once all of them are.
    """

    def __init__(
        self,
        pool: Pool,
        tail: Tail,
        workers: Workers,
        moved: Callable[[Block, Block], None],
        fence: Callable[[str], None],
    ) -> None:
        self._pool, self._tail, self._workers, self._moved, self._fence = pool, tail, workers, moved, fence

    def run(self, held: Pairs, idle: Pairs, places: dict[int, list[Place]]) -> float:
        """Move ``held`` blocks, which stand in ``places``, and ``idle`` cached ones, each onto a free block.

        What they leave is offline. Returns what the copies took, in seconds of a worker's thread. Raises what hindered
        it; the fence tells whether that was in time.
        """
        pool = self._pool
        for _source, copy in (*held, *idle):
            if copy.block_hash is not None:
                pool._maybe_evict_cached_block(copy)
        rows = self._workers.ask(in_worker.copy, _numbers([*held, *idle]))
        seconds = max(float(row["seconds"]) for row in rows)
        self._fence("it was cut off")  # by whatever: also by what is no Exception
        try:
            if held:
                self._workers.ask(in_worker.rewrite, _numbers(held))
            self._rewrite(held, idle, places)
        except Exception as error:
            self._fence(f"{type(error).__name__}: {error}")
            raise
        self._fence("")
        return seconds

    def _rewrite(self, held: Pairs, idle: Pairs, places: dict[int, list[Place]]) -> None:
        pool, queue = self._pool, self._pool.free_block_queue
        for source, copy in held:
            queue.remove(copy)
            copy.ref_cnt, source.ref_cnt = source.ref_cnt, 0
            self._rename(source, copy)
            for table, index in places[source.block_id]:
                table[index] = copy
        for source, copy in idle:
            put_before(queue, source, [copy])  # as soon, or as late, to be reused as what it is a copy of
            queue.remove(source)
            self._rename(source, copy)
        self._tail.book([source for source, _copy in (*held, *idle)])
        watched: Any = getattr(pool, "metrics_collector", None)
        lives = getattr(watched, "block_metrics", None)
        if lives:
            for source, copy in (*held, *idle):
                if source.block_id in lives:
                    lives[copy.block_id] = lives.pop(source.block_id)

    def _rename(self, source: Block, copy: Block) -> None:
        self._moved(source, copy)
        if source.block_hash is not None:
            self._pool.move_block_hashes(source, copy)


def _numbers(pairs: Pairs) -> list[tuple[int, int]]:
    return [(source.block_id, copy.block_id) for source, copy in pairs]
