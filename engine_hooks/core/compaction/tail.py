"""The blocks of one pool that are offline: in no queue, held by nobody, and in nobody's sum.

vLLM's own gauge divides by the pool's ``num_gpu_blocks``, and its reset compares with it: so that number shrinks, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.pins import Block, Pool


class Tail:
    """Takes blocks offline and back. ``flags``: one byte per block of the pool, 1 while it is offline."""

    def __init__(self, pool: Pool, accounts: KVAccounts) -> None:
        self._pool, self._accounts = pool, accounts
        self.flags = bytearray(len(pool.blocks))
        self.count = 0

    def take(self, blocks: Sequence[Block]) -> None:
        """Take free blocks offline; what they had cached is forgotten, and told to who follows the cache."""
        pool = self._pool
        for block in blocks:
            if block.block_hash is not None:
                pool._maybe_evict_cached_block(block)
            pool.free_block_queue.remove(block)
        self.book(blocks)

    def book(self, blocks: Sequence[Block]) -> None:
        """Note that ``blocks``, which are in no queue any more, are offline."""
        for block in blocks:
            self.flags[block.block_id] = 1
        self._resize(len(blocks))

    def back(self, numbers: Sequence[int]) -> None:
        """Bring blocks back, to be used first: they hold nothing."""
        for number in numbers:
            self.flags[number] = 0
        self._pool.free_block_queue.prepend_n([self._pool.blocks[number] for number in numbers])
        self._resize(-len(numbers))

    def lowest(self) -> Iterator[int]:
        """Yield the ids of what is offline, from below."""
        number = self.flags.find(1)
        while number >= 0:
            yield number
            number = self.flags.find(1, number + 1)

    def _resize(self, blocks: int) -> None:
        self.count += blocks
        self._pool.num_gpu_blocks -= blocks
        self._accounts.taken_offline(blocks)
