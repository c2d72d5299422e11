"""The order of the free queue: who is reused next. A block's references and hashes stay as they are.

vLLM's queue is a linked list between two blocks that stand for its ends; ``remove`` and ``append_n`` are its own, and
what it lacks (to put a block before another) is done on the same links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine_hooks.core.levers.arguments import need
from engine_hooks.core.pins import Block, Pool
from engine_hooks.levers.base import RefusedError

Queue = Any  # vllm.v1.core.kv_cache_utils.FreeKVCacheBlockQueue


def check_pool(pool: Pool) -> None:
    """Refuse, as unsupported, a pool whose free queue is of another kind, or that caches nothing."""
    need(pool, "free_block_queue", "blocks", "cached_block_hash_to_block")
    need(pool.free_block_queue, "fake_free_list_head", "fake_free_list_tail", "remove", "append_n", "num_free_blocks")
    need(pool.blocks[-1], "prev_free_block", "next_free_block", "block_hash")
    need(pool.cached_block_hash_to_block, "get_one_block")
    if not getattr(pool, "enable_caching", False):
        raise RefusedError("unsupported", "prefix caching is off")


def first(queue: Queue, limit: int) -> list[Block]:
    """Return the first ``limit`` free blocks, the next to be reused first; refuses a queue that is not sound."""
    found: list[Block] = []
    before, tail = queue.fake_free_list_head, queue.fake_free_list_tail
    block = before.next_free_block
    while block is not tail and len(found) < limit:
        if block is None or block.prev_free_block is not before or block.ref_cnt:
            raise RefusedError("unsafe", "the free queue is broken")
        found.append(block)
        before, block = block, block.next_free_block
    return found


def put_before(queue: Queue, anchor: Block, blocks: Sequence[Block]) -> None:
    """Move free ``blocks``, in this order, to just before ``anchor``, a free block that is none of them."""
    for block in blocks:
        queue.remove(block)
    before = anchor.prev_free_block
    for block in blocks:
        before.next_free_block, block.prev_free_block = block, before
        before = block
    before.next_free_block, anchor.prev_free_block = anchor, before
    queue.num_free_blocks += len(blocks)


def put_last(queue: Queue, blocks: Sequence[Block]) -> None:
    """Move free ``blocks``, in this order, to the back."""
    for block in blocks:
        queue.remove(block)
    queue.append_n(list(blocks))


def is_free_and_cached(pool: Pool, block: Block) -> bool:
    """Whether it holds a prefix that nobody uses now, and that nobody reads unseen until it is reused."""
    if block.ref_cnt or block.is_null or block.block_hash is None or block.prev_free_block is None:
        return False
    return block.block_id not in getattr(pool, "_reuse_watchers", ())
