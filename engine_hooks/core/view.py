"""Read-only view of a vLLM scheduler and its KV block pools, for the engine's own thread, between two steps.

Everything is probed once, when the engine has come up; what this vLLM lacks is None or said in ``support``.
"""

from __future__ import annotations

from typing import Any

from engine_hooks.core.kv_layout import pool_block_bytes
from engine_hooks.core.pins import find_pins
from engine_hooks.core.pool_view import PoolView
from engine_hooks.wire import PoolInfo, Support

MAIN_POOL = "gpu"


class SchedulerView(PoolView):
    """One engine's scheduler, as the view of its main pool; ``others`` are views of the pools beside it.

    ``support`` says whether exact accounting is possible here. Without it the counters still work, unless
    ``pool`` is None (an engine with no block pool at all).
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        manager = getattr(scheduler, "kv_cache_manager", None)
        pool = getattr(manager, "block_pool", None)
        coordinator = getattr(manager, "coordinator", None)
        tables = getattr(coordinator, "single_type_managers", None)
        if tables is None and hasattr(manager, "req_to_blocks"):
            tables = (manager,)  # up to vLLM 0.8 the table sat on the manager itself
        self.groups: tuple[Any, ...] = tuple(tables or ())
        pins, unknown = find_pins(getattr(scheduler, "connector", None))
        beside = _pools_beside(pool, self.groups, pins)
        super().__init__(
            MAIN_POOL,
            pool,
            [m for m in self.groups if getattr(m, "block_pool", pool) is pool],
            scheduler=scheduler,
            pins=pins,
            unknown_pinners=unknown,
            several=bool(beside),
        )
        self.others = tuple(
            PoolView(
                name,
                other,
                [m for m in self.groups if getattr(m, "block_pool", None) is other],
                scheduler=scheduler,
                pins=pins,
                several=True,
            )
            for name, other in beside
        )
        self._count_requests = getattr(scheduler, "get_request_counts", None)
        self.support = self._support()

    def _support(self) -> Support:
        if self.pool is None:
            return Support(ok=False, reason="this engine has no KV block pool")
        if not self.managers:
            return Support(ok=False, reason="no block tables (req_to_blocks) were found")
        return self.probe()

    def running_and_waiting(self) -> tuple[int, int]:
        """Requests that run, and requests that wait for whatever reason."""
        if self._count_requests is not None:
            running, waiting = self._count_requests()
            return int(running), int(waiting)
        waiting_queues = ("waiting", "kv_holding_waiting", "skipped_waiting")
        return len(self.scheduler.running), sum(len(getattr(self.scheduler, name, ())) for name in waiting_queues)

    def requests(self) -> int:
        """Requests that the scheduler knows, finished ones whose blocks are still awaited included."""
        return len(self.scheduler.requests)

    def at_rest(self) -> bool:
        """Whether nothing can rightly hold a block: no request, no free put off, no connector at work."""
        return (
            not self.scheduler.requests
            and not getattr(self.scheduler, "deferred_frees", None)
            and self.nothing_pinned()
        )

    def delayed(self) -> int:
        """Table entries of finished requests, whose blocks are kept for a connector; O(finished requests kept)."""
        running, waiting = self.running_and_waiting()
        if len(self.scheduler.requests) <= running + waiting:
            return 0
        finished = [key for key, request in self.scheduler.requests.items() if request.is_finished()]
        return sum(len(manager.req_to_blocks.get(key, ())) for manager in self.managers for key in finished)

    def pool_info(self) -> PoolInfo | None:
        """Capacity and sizes of the main pool, or None without a pool."""
        if self.pool is None:
            return None
        config = getattr(self.scheduler, "kv_cache_config", None)
        tokens = getattr(self.scheduler, "block_size", None)
        dtype = getattr(getattr(self.scheduler, "cache_config", None), "cache_dtype", "")
        longest = getattr(self.scheduler, "max_model_len", None)
        return PoolInfo(
            capacity=self.capacity(),
            block_tokens=int(tokens) if tokens else None,
            block_bytes=pool_block_bytes(config),
            cache_dtype=dtype if isinstance(dtype, str) and dtype.isascii() and dtype.isprintable() else "",
            longest_tokens=longest if isinstance(longest, int) and longest > 0 else None,
        )


def _pools_beside(main: Any, groups: tuple[Any, ...], pins: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """The other pools of this engine, by name: those of groups that live in host memory, and a connector's own."""
    found: list[tuple[str, Any]] = []
    for manager in groups:
        pool = getattr(manager, "block_pool", main)
        if pool is not main and all(pool is not known for _, known in found):
            found.append(("host" if not found else f"host{len(found)}", pool))
    for source in pins:
        for name, pool in getattr(source, "pools", tuple)():
            if pool is not main and all(pool is not known for _, known in found):
                found.append((name, pool))
    return found
