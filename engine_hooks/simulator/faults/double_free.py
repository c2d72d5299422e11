"""Blocks that are given back twice while others still read them."""

from __future__ import annotations

from typing import Any

from engine_hooks.simulator.core import SimulatedCore
from engine_hooks.simulator.faults.base import Leak, tables_of, tenant_of


class DoubleFree(Leak):
    """A request that ends gives blocks back twice that others share with it."""

    VERDICT = "kv_over_freed"

    def ready(self, core: SimulatedCore) -> None:
        """Wrap around the hooks' own wrappers: they see both frees, as they would a caller's of vLLM."""
        pool, manager = core.scheduler.kv_cache_manager.block_pool, core.scheduler.kv_cache_manager
        free_blocks, free = pool.free_blocks, manager.free

        def tolerant_free_blocks(blocks: Any, *args: Any, **kwargs: Any) -> Any:
            # A reference count below zero would end vLLM with an assertion some steps later; there are builds that
            # leave out what is free already, and go on with corrupted output.
            return free_blocks([block for block in blocks if block.ref_cnt > 0 or block.is_null], *args, **kwargs)

        def double_free(request: Any, *args: Any, **kwargs: Any) -> Any:
            number = self.due() if self.concerns(request) else 0
            table = list(tables_of(core)[0].req_to_blocks.get(request.request_id, ()))
            result = free(request, *args, **kwargs)
            again = [block for block in table if block.ref_cnt > 0 and not block.is_null][:number]
            if again:
                pool.free_blocks(again)
                self.took(len(again), tenant_of(request))
            return result

        pool.free_blocks, manager.free = tolerant_free_blocks, double_free
