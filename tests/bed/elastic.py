"""A pool with the interface of kvcached's, for vLLM's scheduler: blocks come from, and go back to, a manager of pages.

After kvcached's sources of 2025 and 2026; the package can't be installed without a GPU. It has no ``blocks`` and no
queue of free ones (from vLLM 0.29 on ``blocks``, and still no queue), and makes block objects anew for each request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# What it sets in the environment must be there before vLLM is imported.
from tests.bed import scheduler as _environment  # noqa: F401

# isort: split
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock


class Pages:
    """What kvcached's ``KVCacheManager`` is to its pool. ``limit``: blocks that may be taken now."""

    def __init__(self, blocks: int) -> None:
        self.limit = blocks
        self.taken: set[int] = set()

    def available_size(self) -> int:
        return max(0, self.limit - len(self.taken))

    def alloc(self, count: int) -> list[int] | None:
        free = [number for number in range(self.limit) if number not in self.taken][:count]
        if len(free) < count:
            return None
        self.taken.update(free)
        return free

    def free(self, numbers: list[int]) -> None:
        self.taken.difference_update(numbers)


class ElasticBlockPool(BlockPool):
    """``listed``: as for vLLM 0.29 and newer."""

    def __init__(self, blocks: int, *, listed: bool) -> None:
        self.num_gpu_blocks = blocks
        self.enable_caching = self.enable_kv_cache_events = False
        self.kv_event_queue = []
        self.kv_cache_manager = Pages(blocks)
        self.null_block: Any = None
        if listed:
            self.blocks = [KVCacheBlock(number) for number in range(blocks)]
            self.cached_block_hashes_by_block: dict[int, Any] = {}

    def get_cached_block(self, *_: Any, **__: Any) -> Any:
        return None

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        if num_blocks > self.get_num_free_blocks():
            raise ValueError(f"Cannot get {num_blocks} free blocks from the pool")
        numbers = self.kv_cache_manager.alloc(num_blocks) or []
        blocks = [KVCacheBlock(number) for number in numbers]
        for block in blocks:
            block.ref_cnt = 1
        return blocks

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock], prepend: bool = False) -> None:
        self.kv_cache_manager.free([block.block_id for block in ordered_blocks])

    def touch(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def get_num_free_blocks(self) -> int:
        return self.kv_cache_manager.available_size()

    def get_usage(self) -> float:
        return 1.0 - self.get_num_free_blocks() / self.num_gpu_blocks


def give(scheduler: Any, blocks: int, *, listed: bool) -> ElasticBlockPool:
    """Have a scheduler take its blocks from such a pool."""
    pool = ElasticBlockPool(blocks, listed=listed)
    manager = scheduler.kv_cache_manager
    manager.block_pool = manager.coordinator.block_pool = pool
    for one in manager.coordinator.single_type_managers:
        one.block_pool = pool
        one._null_block = None
    return pool
