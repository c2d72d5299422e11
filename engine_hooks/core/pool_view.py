"""Read-only view of one KV block pool and of all that explains references on its blocks, between two engine steps.

Blocks are compared by identity: ``KVCacheBlock`` is a dataclass whose ``==`` walks the free queue.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from engine_hooks.core.pins import Block, PinSource
from engine_hooks.wire import Support

MAX_WALKED = 20_000  # table entries
_is_null = attrgetter("is_null")
_NEEDED = ("blocks", "free_block_queue", "get_num_free_blocks", "get_new_blocks", "touch", "free_blocks")


def count_nulls(blocks: Sequence[Block]) -> int:
    """Return how many entries are the null block, whose reference count vLLM does not keep."""
    return sum(map(_is_null, blocks))


class PoolView:
    """One pool, the block tables over it (one manager per KV cache group), and who else holds its blocks.

    ``pins``: connectors whose books are known. ``unknown_pinners``: those that may hold blocks unseen.
    ``deferred``: the scheduler's queue of frees that wait for a step in flight.
    """

    def __init__(
        self,
        name: str,
        pool: Any,
        managers: Sequence[Any],
        *,
        scheduler: Any = None,
        pins: Sequence[PinSource] = (),
        unknown_pinners: Sequence[str] = (),
        several: bool = False,
    ) -> None:
        self.name = name
        self.pool = pool
        self.managers = tuple(managers)
        self.pins = tuple(pins)
        self.unknown_pinners = tuple(unknown_pinners)
        self.several = several
        self._scheduler = scheduler
        # A full-attention table never has placeholders; every other kind may, and then they are counted.
        self._sparse = [type(m).__name__ != "FullAttentionManager" for m in self.managers]
        self._tables = tuple(zip(self.managers, self._sparse, strict=True))
        self.may_hold_nulls = any(self._sparse) or not self.managers
        self._null_blocks = 0 if getattr(pool, "null_block", None) is None else 1
        self._set_aside = 0
        self.offline = 0  # blocks that are in no queue although nobody holds them; the pool's own size is without them

    def probe(self) -> Support:
        """Return whether every reference on this pool can be explained here."""
        for name in _NEEDED:
            if not hasattr(self.pool, name):
                return Support(ok=False, reason=f"{type(self.pool).__name__} has no {name}")
        if len(inspect.signature(self.pool.get_new_blocks).parameters) != 1:
            return Support(ok=False, reason=f"{type(self.pool).__name__}.get_new_blocks takes more than a number")
        if not all(hasattr(m, "req_to_blocks") for m in self.managers):
            return Support(ok=False, reason="no block tables (req_to_blocks) were found")
        return Support(ok=True)

    def set_aside(self, blocks: int) -> None:
        """Take ``blocks`` out of the capacity: some models take blocks for good when they come up (attention sinks)."""
        self._set_aside = blocks

    @property
    def aside(self) -> int:
        """Blocks that were set aside."""
        return self._set_aside

    # -- counters, O(1) ------------------------------------------------------------------------------------

    def capacity(self) -> int:
        """Usable blocks now."""
        return int(self.pool.num_gpu_blocks) - self._null_blocks - self._set_aside

    def held(self) -> int:
        """Blocks that are not in the free queue, the null block aside: what vLLM's own usage gauge counts."""
        return self.capacity() - int(self.pool.get_num_free_blocks())

    def pinned(self) -> int:
        """References that known connectors hold."""
        return sum(len(blocks) for source in self.pins for _key, blocks in source.pinned(self.pool))

    def nothing_pinned(self) -> bool:
        """Whether no connector holds a block of this pool, as far as it can be known."""
        return not self.unknown_pinners and not any(True for pin in self.pins for _ in pin.pinned(self.pool))

    def deferred(self) -> int:
        """Blocks whose free waits for a step in flight."""
        return sum(map(len, self._deferred())) if getattr(self._scheduler, "deferred_frees", None) else 0

    # -- references that the tables and queues explain ----------------------------------------------------

    def explained_references(self) -> int:
        """Return how many references on this pool's blocks are explained; O(requests), or O(blocks) with nulls."""
        # Ten times a second, and then each function that is called costs more than what it does.
        total = 0
        for manager, sparse in self._tables:
            tables = manager.req_to_blocks.values()
            total += sum(map(len, tables))
            if sparse:
                total -= sum(map(count_nulls, tables))
            copies = getattr(manager, "_pending_cow_copies", None)
            if copies:  # each keeps one reference on its source and one on its copy
                total += 2 * len(copies)
        if getattr(self._scheduler, "deferred_frees", None):
            for blocks in self._deferred():
                total += len(blocks) - (count_nulls(blocks) if self.may_hold_nulls else 0)
        if self.pins:
            total += self.pinned() - sum(map(len, self.borrowed()))
        return total

    def net_is_cheap(self) -> bool:
        """Whether the tables can be summed in about a millisecond; those with placeholders must be walked."""
        if not self.may_hold_nulls:
            return True
        walked = (manager for manager, sparse in self._tables if sparse)
        return sum(sum(map(len, manager.req_to_blocks.values())) for manager in walked) <= MAX_WALKED

    def pending_copies(self) -> int:
        """Pending copies-on-write: each has taken one reference by a path that is not counted."""
        total = 0
        for manager in self.managers:
            total += len(getattr(manager, "_pending_cow_copies", ()))
        return total

    def holders(self) -> Iterator[tuple[str, Sequence[Block]]]:
        """Yield, one by one, the block lists that explain references, each with the id of the request that owns it.

        The id is empty for deferred frees, pending copies and pins. The tables to visit are fixed at the first step;
        each list is read only when its turn comes, so that a walk may be spread over several engine steps.
        """
        keys = [(manager, list(manager.req_to_blocks)) for manager in self.managers]
        for manager, requests in keys:
            for request in requests:
                blocks = manager.req_to_blocks.get(request)  # a defaultdict: [] would create the entry
                if blocks:
                    yield request, blocks
        for blocks in list(self._deferred()):
            yield "", blocks
        for manager in self.managers:
            for pair in list(getattr(manager, "_pending_cow_copies", ())):
                yield "", pair
        for source in self.pins:
            for _key, blocks in source.pinned(self.pool):
                yield "", blocks

    def borrowed(self) -> Iterator[Sequence[Block]]:
        """Yield lists of blocks that stand in a table without a reference: they are expected once less."""
        for source in self.pins:
            yield from source.borrowed(self.pool)

    def _deferred(self) -> Iterator[Sequence[Block]]:
        for _fence, blocks in getattr(self._scheduler, "deferred_frees", None) or ():
            yield [b for b in blocks if b.pool is self.pool] if self.several else blocks
