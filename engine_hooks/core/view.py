"""Read-only view of a vLLM scheduler and its KV block pool, for the engine's own thread, between two steps.

Everything is probed once, when the engine has come up; what this vLLM lacks is None or said in ``support``.
Blocks are compared by identity: ``KVCacheBlock`` is a dataclass whose ``==`` walks the free queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from engine_hooks.wire import PoolInfo, Support

Block = Any  # vllm.v1.core.kv_cache_utils.KVCacheBlock: block_id, ref_cnt, is_null, _block_hash

MAX_WALKED = 20_000  # table entries
_is_null = attrgetter("is_null")


def count_nulls(blocks: Sequence[Block]) -> int:
    """Return how many entries are the null block, whose reference count vLLM does not keep."""
    return sum(map(_is_null, blocks))


class SchedulerView:
    """One engine's scheduler, its main pool and the block tables over that pool.

    ``support`` says whether exact accounting is possible here. Without it the counters still work, unless
    ``pool`` is None (an engine with no block pool at all).
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        manager = getattr(scheduler, "kv_cache_manager", None)
        self.pool: Any = getattr(manager, "block_pool", None)
        coordinator = getattr(manager, "coordinator", None)
        tables = getattr(coordinator, "single_type_managers", None)
        if tables is None and hasattr(manager, "req_to_blocks"):
            tables = (manager,)  # up to vLLM 0.8 the table sat on the manager itself
        self.managers: tuple[Any, ...] = tuple(tables or ())
        # A full-attention table never has placeholders; every other kind may, and then they are counted.
        self._sparse = [type(m).__name__ != "FullAttentionManager" for m in self.managers]
        self.may_hold_nulls = any(self._sparse)
        self._null_blocks = 0 if getattr(self.pool, "null_block", None) is None else 1
        self._count_requests = getattr(scheduler, "get_request_counts", None)
        self.support = self._probe()

    def _probe(self) -> Support:
        if self.pool is None:
            return Support(ok=False, reason="this engine has no KV block pool")
        for name in ("blocks", "free_block_queue", "get_new_blocks", "touch", "free_blocks"):
            if not hasattr(self.pool, name):
                return Support(ok=False, reason=f"{type(self.pool).__name__} has no {name}")
        if not self.managers or not all(hasattr(m, "req_to_blocks") for m in self.managers):
            return Support(ok=False, reason="no block tables (req_to_blocks) were found")
        if any(getattr(m, "block_pool", self.pool) is not self.pool for m in self.managers):
            return Support(ok=False, reason="this engine has more than one block pool")
        for name in ("connector", "ec_connector"):
            connector = getattr(self.scheduler, name, None)
            if connector is not None:
                kind = type(connector).__name__
                return Support(ok=False, reason=f"{kind} may hold blocks that no table shows")
        return Support(ok=True)

    # -- counters, O(1) ------------------------------------------------------------------------------------

    def capacity(self) -> int:
        """Usable blocks now."""
        return int(self.pool.num_gpu_blocks) - self._null_blocks

    def held(self) -> int:
        """Blocks that are not in the free queue, the null block aside: what vLLM's own usage gauge counts."""
        return self.capacity() - int(self.pool.get_num_free_blocks())

    def running_and_waiting(self) -> tuple[int, int]:
        """Requests that run, and requests that wait for whatever reason."""
        if self._count_requests is not None:
            running, waiting = self._count_requests()
            return int(running), int(waiting)
        waiting_queues = ("waiting", "skipped_waiting")
        return len(self.scheduler.running), sum(len(getattr(self.scheduler, name, ())) for name in waiting_queues)

    def requests(self) -> int:
        """Requests that the scheduler knows, finished ones whose blocks are still awaited included."""
        return len(self.scheduler.requests)

    def at_rest(self) -> bool:
        """Whether nothing can rightly hold a block: no request, and no free put off. Needs ``support.ok``."""
        return not self.scheduler.requests and not getattr(self.scheduler, "deferred_frees", None)

    # -- references that the tables and queues explain ----------------------------------------------------

    def explained_references(self) -> int:
        """Return how many references on this pool's blocks are explained; O(requests), or O(blocks) with nulls."""
        total = 0
        for manager, sparse in zip(self.managers, self._sparse, strict=True):
            tables = manager.req_to_blocks.values()
            total += sum(map(len, tables))
            if sparse:
                total -= sum(map(count_nulls, tables))
            # Each pending copy-on-write keeps one reference on its source and one on its copy.
            total += 2 * len(getattr(manager, "_pending_cow_copies", ()))
        for blocks in self._deferred():
            total += len(blocks) - (count_nulls(blocks) if self.may_hold_nulls else 0)
        return total

    def net_is_cheap(self) -> bool:
        """Whether the tables can be summed in about a millisecond; those with placeholders must be walked."""
        if not self.may_hold_nulls:
            return True
        return sum(sum(map(len, manager.req_to_blocks.values())) for manager in self.managers) <= MAX_WALKED

    def pending_copies(self) -> int:
        """Pending copies-on-write: each has taken one reference by a path that is not counted."""
        return sum(len(getattr(m, "_pending_cow_copies", ())) for m in self.managers)

    def holders(self) -> Iterator[Sequence[Block]]:
        """Yield, one by one, the block lists that explain references: tables, deferred frees, pending copies.

        The tables to visit are fixed at the first step; each list is read only when its turn comes, so that a
        walk may be spread over several engine steps.
        """
        keys = [(manager, list(manager.req_to_blocks)) for manager in self.managers]
        for manager, requests in keys:
            for request in requests:
                blocks = manager.req_to_blocks.get(request)  # a defaultdict: [] would create the entry
                if blocks:
                    yield blocks
        yield from list(self._deferred())
        for manager in self.managers:
            yield from list(getattr(manager, "_pending_cow_copies", ()))

    def _deferred(self) -> Iterator[Sequence[Block]]:
        for _fence, blocks in getattr(self.scheduler, "deferred_frees", ()):
            yield blocks

    # -- what is fixed at start ---------------------------------------------------------------------------

    def pool_info(self) -> PoolInfo | None:
        """Capacity and sizes of the main pool, or None without a pool."""
        if self.pool is None:
            return None
        config = getattr(self.scheduler, "kv_cache_config", None)
        tensors = getattr(config, "kv_cache_tensors", None) or ()
        blocks = int(self.pool.num_gpu_blocks)
        size = sum(int(tensor.size) for tensor in tensors)
        tokens = getattr(self.scheduler, "block_size", None)
        return PoolInfo(
            capacity=self.capacity(),
            block_tokens=int(tokens) if tokens else None,
            block_bytes=size // blocks if size and blocks else None,
        )
