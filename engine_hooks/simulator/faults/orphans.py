"""Blocks that nobody gives back: a request is let go, and some of its blocks keep their reference."""

from __future__ import annotations

from typing import Any

from engine_hooks.simulator.core import SimulatedCore
from engine_hooks.simulator.faults.base import Leak, tables_of, tenant_of


class FreeForgets(Leak):
    """When a request ends, a part of its table is not given back. The base of all leaks of this kind."""

    VERDICT = "kv_orphan"

    def prepare(self, core: SimulatedCore) -> None:
        """See :class:`Plant`."""
        manager = core.scheduler.kv_cache_manager
        free = manager.free

        def forgetful_free(request: Any, *args: Any, **kwargs: Any) -> Any:
            number = self.due() if self.concerns(request) else 0
            taken = sum(self.leave_out(m.req_to_blocks.get(request.request_id), number) for m in tables_of(core)[:1])
            result = free(request, *args, **kwargs)
            self.took(taken, tenant_of(request))
            return result

        manager.free = forgetful_free

    def leave_out(self, table: list[Any] | None, number: int) -> int:
        """Take up to ``number`` blocks that only this request holds out of its table, the last ones first."""
        if not table or number <= 0:
            return 0
        places = [place for place, block in enumerate(table) if block.ref_cnt == 1 and not block.is_null]
        for place in reversed(places[-number:]):
            del table[place]
        return len(places[-number:])


class AbortForgets(FreeForgets):
    """The abort path forgets to free."""

    def concerns(self, request: Any) -> bool:
        """Only requests whose client went away."""
        return request.status.name == "FINISHED_ABORTED" and super().concerns(request)


class SlowLeak(FreeForgets):
    """One block a minute, from whoever ends."""

    RATE = 1.0


class Staircase(FreeForgets):
    """A step every few minutes that never comes down."""

    @property
    def steps(self) -> tuple[int, float]:
        """See :class:`Leak`."""
        return max(4, self.world.spec.engine.blocks // 100), 300.0


class BurstLeak(FreeForgets):
    """Many blocks at once, and then no more."""

    @property
    def steps(self) -> tuple[int, float]:
        """See :class:`Leak`."""
        return max(8, self.world.spec.engine.blocks // 20), 0.0


class SharedPrefix(FreeForgets):
    """The blocks that requests begin with in common keep one reference too many."""

    def prepare(self, core: SimulatedCore) -> None:
        """See :class:`Plant`."""
        self._known: set[int] = set()
        super().prepare(core)

    def leave_out(self, table: list[Any] | None, number: int) -> int:
        """Take blocks out that had been hits, the first ones first, each block once."""
        if not table or number <= 0:
            return 0
        places = [
            place
            for place, block in enumerate(table)
            if block.block_hash is not None and not block.is_null and block.block_id not in self._known
        ][:number]
        for place in reversed(places):
            self._known.add(table[place].block_id)
            del table[place]
        return len(places)


class SpecResidue(FreeForgets):
    """A request that is interrupted while drafts are open keeps the blocks that were meant for them."""

    VERDICT = "spec_residue"

    def concerns(self, request: Any) -> bool:
        """Only interrupted ones with drafts open."""
        interrupted = request.status.name in ("FINISHED_ABORTED", "RUNNING")  # RUNNING: it is being preempted
        return interrupted and bool(request.spec_token_ids) and super().concerns(request)
