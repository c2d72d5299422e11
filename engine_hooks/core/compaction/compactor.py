"""Shrinks one engine's pool and grows it back, a slice between two steps at a time.

A slice that moves blocks takes some milliseconds: as many blocks as the last one shows to fit, 200 at most. What a
slice does it does wholly, and the engine runs between slices as ever: a shrink that ends halfway leaves a smaller
pool, and nothing else.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine_hooks.core.compaction.between import BetweenSteps
from engine_hooks.core.compaction.checks import check_now, pending
from engine_hooks.core.compaction.counts import LEVER, Counts
from engine_hooks.core.compaction.plan import UnsoundError, free_below, look_down, places, ranges_of, walk
from engine_hooks.core.compaction.relocate import Relocation
from engine_hooks.core.compaction.tail import Tail
from engine_hooks.core.compaction.workers import Workers, WorkersError
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.pins import Block
from engine_hooks.levers.base import RefusedError
from engine_hooks.worker import compaction as in_worker

MAX_MOVES = 200  # blocks in one slice
FIRST_MOVES = 16
LEAST_BYTES = 2 << 20  # to be copied in one slice: two milliseconds of a slow core
MAX_LOOKS = 4096  # blocks looked at in one slice: about a millisecond
AIM_SECONDS = 0.005  # what a slice that moves should take
MAX_ROUNDS = 64  # looks at all that is above the line: requests that come and go leave blocks behind
MAX_WAITS = 200  # slices that found something in the way
LOOK_AGAIN = 0.2  # seconds between two questions whether the pages have gone
RETRY = 1.0  # seconds before memory that was not there is asked for again
GROW_AGAIN = 0.005  # seconds between two questions whether blocks that come back are ready
CHUNK_BYTES = 64 << 20  # of blocks that come back together

Worth = Callable[[Sequence[Block]], Sequence[bool]]


@dataclass(slots=True)
class Shrinking:
    """One shrink under way. ``line``: the first block that goes. ``sweep``: free blocks still to be looked at, from the
    front of the free queue; ``after``: the last one seen. ``at``: the next to be looked at from above.
    """

    line: int
    worth: Worth
    in_force: Callable[[], tuple[str, ...]]
    sweep: int
    at: int
    after: Block | None = None
    moves: int = FIRST_MOVES
    rounds: int = 0
    waits: int = 0


class Compactor:
    """One engine's. ``moved``: told of each block that is moved, and its copy."""

    def __init__(
        self, context: LeverContext, workers: Workers, counts: Counts, moved: Callable[[Block, Block], None]
    ) -> None:
        self._context, self._workers, self.counts = context, workers, counts
        self._view, self._pool = context.view, context.view.pool
        self._manager = context.view.groups[0]
        self.between = BetweenSteps(context.engine, context.guard, self._wanted, self._work)
        self.tail = Tail(self._pool, context.accounts)
        self._relocation = Relocation(self._pool, self.tail, workers, moved, self.between.fence)
        self._shrinking: Shrinking | None = None
        self._releasing = False
        self._left: int | None = None  # while it grows: how many blocks may stay offline
        self._coming: list[int] | None = None  # those whose pages are being made ready
        self._next = 0.0  # before then nothing is to be done
        self.block_bytes = 0  # on all ranks
        self._counting: Callable[..., int] | None = None

    # -- what the lever asks for ---------------------------------------------------------------------------

    def shrink(self, shrinking: Shrinking, block_bytes: int, *, releases: bool) -> None:
        """Begin to take all blocks from the line on offline."""
        self.counts.orders += 1
        self._shrinking, self._left, self._coming, self._releasing = shrinking, None, None, False
        self._next = 0.0
        self.block_bytes = block_bytes
        self.counts.released_bytes = (self.counts.released_bytes or 0) if releases else None
        self._state("moving")
        self._begin()

    def grow(self, left: int) -> None:
        """Begin to bring blocks back until ``left`` are offline; moves that are not done are not done any more."""
        self.counts.orders += 1
        self._shrinking, self._coming, self._releasing, self._next = None, None, False, 0.0
        if self.tail.count:
            self._left = left
            self._state("growing")
            self._begin()
        elif not self.between.broken:
            self._state("idle")
            self._end()

    @property
    def under_way(self) -> bool:
        """Whether the pool's size is not yet what was asked for last, or blocks are coming back."""
        return self._shrinking is not None or self._left is not None

    # -- between two steps ---------------------------------------------------------------------------------

    def _wanted(self) -> bool:
        if self._shrinking is not None:
            return self._coming is None or self._context.clock() >= self._next
        if self._left is None and self._low():
            self._left, self._releasing, self._next = max(0, self.tail.count - self._some()), False, 0.0
            self._state("growing", "pressure: few blocks are free")
        return (self._left is not None or self._releasing) and self._context.clock() >= self._next

    def _low(self) -> bool:
        """Whether fewer blocks are free than the next steps may need, and there are more."""
        return bool(self.tail.count) and self._pool.free_block_queue.num_free_blocks < self.reserve(
            int(self._pool.num_gpu_blocks)
        )

    def reserve(self, capacity: int) -> int:
        """Free blocks that a pool of this size keeps: for each request its next one, and a twentieth."""
        return len(self._context.scheduler.requests) + capacity // 20 + 1

    def _work(self) -> None:
        began = time.perf_counter()
        try:
            if self._shrinking is not None:
                self._shrink(self._shrinking)
            elif self._left is not None:
                self._grow(self._left)
            elif self._releasing:
                self._look_at_pages()
        except (RefusedError, UnsoundError, WorkersError) as error:
            self._stop(str(error))
        except Exception as error:
            self._stop(f"{type(error).__name__}: {error}")
            raise
        finally:
            self.counts.pauses.add(time.perf_counter() - began)

    def _shrink(self, shrinking: Shrinking) -> None:
        why = pending(self._context)
        if why:
            shrinking.waits += 1
            if shrinking.waits > MAX_WAITS:
                raise RefusedError("unsafe", why)
            return
        check_now(self._context, shrinking.in_force())
        if self._context.taps.refusals:
            raise RefusedError("unsafe", "pressure: a request was refused memory")
        if self.tail.flags.find(1, 0, shrinking.line) >= 0:
            # A smaller size was ordered before, and it took them: they come back, for they are room for what moves.
            self._bring_back(self.tail.flags.count(1, shrinking.line))
        elif shrinking.sweep > 0:
            self._sweep(shrinking)
        else:
            self._move(shrinking)

    def _sweep(self, shrinking: Shrinking) -> None:
        """Take offline what stands in front of the free queue and above the line: it would be reused first anyway."""
        after = shrinking.after
        if after is not None and (after.ref_cnt or after.next_free_block is None):
            after = None  # it was taken meanwhile: from the front again, as far as there is something left to look at
        gone, last = [], after
        for block in itertools.islice(walk(self._pool.free_block_queue, after), min(shrinking.sweep, MAX_LOOKS)):
            shrinking.sweep -= 1
            if block.block_id >= shrinking.line:
                gone.append(block)
            else:
                last = block
        if not gone and last is after:
            shrinking.sweep = 0
        shrinking.after = last
        self._drop(gone)

    def _move(self, shrinking: Shrinking) -> None:
        began = time.thread_time()
        blocks, flags, line = self._pool.blocks, self.tail.flags, shrinking.line
        found = look_down(blocks, flags, line, shrinking.at, shrinking.worth, moves=shrinking.moves, looks=MAX_LOOKS)
        self._drop(found.spare)
        if found.held or found.idle:
            copying = self._relocate(shrinking, found.held, found.idle)
            # By what the threads have worked: what they had to wait for a processor says nothing about the next slice.
            seconds = max(1e-6, time.thread_time() - began, copying)
            fits = int((len(found.held) + len(found.idle)) * AIM_SECONDS / seconds)
            shrinking.moves = max(self._few(), min(MAX_MOVES, fits, 2 * shrinking.moves))
        shrinking.at = found.below
        if found.below < 0:
            self._round(shrinking)

    def _few(self) -> int:
        """Blocks that fit in any case: a thread that waits for others may seem to work."""
        return max(1, min(MAX_MOVES, LEAST_BYTES // max(1, self.block_bytes)))

    def _relocate(self, shrinking: Shrinking, held: list[Block], idle: list[Block]) -> float:
        """Move them, or as many of ``idle`` as there is room for; return what the copies took."""
        watched = getattr(self._pool, "_reuse_watchers", ())
        places_of = places(self._manager.req_to_blocks.values(), held)
        queue, line = self._pool.free_block_queue, shrinking.line
        free = free_below(queue, line, len(held) + len(idle), lambda block: block.block_id in watched)
        if len(free) < len(held) or queue.num_free_blocks - len(held) < len(self._context.scheduler.requests):
            raise RefusedError("unsafe", "pressure: too few blocks are free below the line")
        self.counts.dropped += sum(block.block_hash is not None for block in free)
        pairs = list(zip(held, free, strict=False))
        kept = list(zip(idle, free[len(held) :], strict=False))
        seconds = self._relocation.run(pairs, kept, places_of)
        self._drop(idle[len(kept) :])
        self.counts.moved += len(pairs)
        self.counts.moved_idle += len(kept)
        return seconds

    def _round(self, shrinking: Shrinking) -> None:
        """All that is above the line was looked at: is all of it offline?"""
        last = len(self._pool.blocks) - 1
        if self.tail.flags.find(0, shrinking.line) < 0:
            self._release()
        elif shrinking.rounds >= MAX_ROUNDS:
            raise RefusedError("unsafe", "blocks above the line were taken as fast as they were moved")
        else:
            shrinking.rounds += 1
            shrinking.at = last

    def _drop(self, blocks: list[Block]) -> None:
        self.counts.dropped += sum(block.block_hash is not None for block in blocks)
        if blocks:
            self.tail.take(blocks)

    # -- pages ---------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Have the workers give back the pages of all that is offline, beside their work."""
        self._shrinking = None
        if self.counts.released_bytes is None or not self.tail.count:
            self._state(self._rests_as(), self.counts.reason)
            return
        self._workers.ask(in_worker.release, ranges_of(self.tail.lowest()))
        self._releasing, self._next = True, self._context.clock() + LOOK_AGAIN
        self._state("releasing", self.counts.reason)

    def _look_at_pages(self) -> None:
        if self._progress():
            self._releasing = False
            self._state(self._rests_as(), self.counts.reason)
        self._next = self._context.clock() + LOOK_AGAIN

    def _progress(self) -> bool:
        """Whether all workers have done what they were to do with their pages."""
        rows = self._workers.ask(in_worker.progress)
        self._note_released(rows)
        return all(row["over"] for row in rows)

    def _note_released(self, rows: Sequence[dict[str, int]]) -> None:
        if self.counts.released_bytes is not None:
            self.counts.released_bytes = max(0, sum(row["bytes"] for row in rows))

    def _rests_as(self) -> str:
        if self.counts.reason:
            return "stopped"
        return "shrunk" if self.tail.count else "idle"

    # -- back ----------------------------------------------------------------------------------------------

    def _grow(self, left: int) -> None:
        """Bring blocks back until ``left`` are offline: a chunk of them is made ready while the engine goes on."""
        if self.tail.count <= left:
            self._grown()
            return
        try:
            self._bring_back(left)
        except WorkersError as error:
            self._coming = None
            self._state("growing", f"memory: {error}")
            self._next = self._context.clock() + RETRY

    def _bring_back(self, left: int) -> None:
        """Have a chunk of blocks made ready, the lowest of more than ``left``; bring them back once they are."""
        if self._coming is None:
            chunk = max(1, CHUNK_BYTES // max(1, self.block_bytes))
            self._coming = list(itertools.islice(self.tail.lowest(), min(chunk, self.tail.count - left)))
            self._workers.ask(functools.partial(in_worker.touch, wait=False), ranges_of(self._coming))
            self._next = self._context.clock() + GROW_AGAIN
        if self._progress():
            self._come_back(self._coming)
            self._next = 0.0

    def _come_back(self, numbers: list[int]) -> None:
        self.tail.back(numbers)
        self._coming = None
        self.counts.grown += len(numbers)

    def _grown(self) -> None:
        self._left, self.counts.reason = None, ""
        if self.tail.count:
            self._release()  # again: it was stopped for those that came back
        else:
            self._state("idle")
            self._end()

    def _demanded(self, needed: int) -> None:
        """A request is about to be refused memory: bring as much back, and some more, at once."""
        self._shrinking, self._releasing, self._coming = None, False, None
        numbers = list(itertools.islice(self.tail.lowest(), max(needed, self._some())))
        try:
            self._workers.ask(functools.partial(in_worker.touch, wait=True), ranges_of(numbers))
            ready = self._progress()
        except WorkersError as error:
            ready = False
            self._state("growing", f"memory: {error}")
        # If not, the request waits, as in a pool that is full; what is still to come comes between two steps.
        if ready:
            self._come_back(numbers)
            self.counts.demanded += len(numbers)
            self._state("growing", "pressure: a request needed blocks at once")
        self._left, self._next = min(self._left or self.tail.count, self.tail.count), 0.0

    def _some(self) -> int:
        """Blocks that come back together where few are needed."""
        return max(64, self.tail.count // 8)

    # -- where we enter the engine -------------------------------------------------------------------------

    def _begin(self) -> None:
        self.between.begin()
        self._context.at_rest.add(LEVER, self._wanted, self.between.run)
        manager = self._context.scheduler.kv_cache_manager
        if self._counting is not None:
            return
        original: Callable[..., int] = manager.coordinator.get_num_blocks_to_allocate
        queue, guard = self._pool.free_block_queue, self._context.guard

        @functools.wraps(original)
        def counting(*args: object, **kwargs: object) -> int:
            needed = original(*args, **kwargs)
            if self.tail.count:
                # What vLLM is about to compare with the free blocks: behind that the request would be refused.
                short = needed + getattr(manager, "watermark_blocks", 0) - queue.num_free_blocks
                if short > 0:
                    guard.run(self.between.HOOK, self._demanded, short)
            return needed

        self._counting = counting
        manager.coordinator.get_num_blocks_to_allocate = counting

    def _end(self) -> None:
        self.between.end()
        self._context.at_rest.remove(LEVER)
        coordinator = self._context.scheduler.kv_cache_manager.coordinator
        if self._counting is not None and vars(coordinator).get("get_num_blocks_to_allocate") is self._counting:
            del coordinator.get_num_blocks_to_allocate
            self._counting = None

    def _stop(self, why: str) -> None:
        """Go no further. What is offline stays so, and its pages go all the same."""
        was_shrinking = self._shrinking is not None
        self._shrinking, self._coming, self._releasing = None, None, False
        self._state("stopped", why)
        if was_shrinking and self.tail.count and not self.between.broken:
            self._context.guard.run(self.between.HOOK, self._release)
        if not self.tail.count and not self.between.broken:
            self._end()

    def _state(self, state: str, why: str = "") -> None:
        self.counts.state, self.counts.reason = state, why
