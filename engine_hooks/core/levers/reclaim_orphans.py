"""Give leaked blocks back to the pool without a restart."""

from __future__ import annotations

from collections import Counter

from engine_hooks.core.levers.arguments import need, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.levers.base import Done, RefusedError, number, whole
from engine_hooks.levers.orders import Arguments

MOST = 1_000_000


class ReclaimOrphans:
    """Arguments: ``age_seconds`` (30): how long the audit must have known a block as leaked; ``blocks``: at most.

    Only blocks that the audit has named, and whose references are counted once more, all of them, in this very moment:
    one that is not as it was named has all be left alone. Refused with any connector, known or not: it may still write
    to what it has lost. A step in flight can't: an orphan is in no table and in no queue, so that no request can
    have been given it since, and what an older one still reads is read before anything newer is written, as on the
    device steps follow each other; vLLM itself frees the blocks of an aborted request under a step in flight.
    Given back through the pool's own ``free_blocks``, so that whoever counts sees it; what a block had cached is
    forgotten first. A block that a request holds too loses only what nothing explains, and comes free with that.
    """

    NAME = "reclaim_orphans"

    def __init__(self, context: LeverContext) -> None:
        accounts, pool = context.accounts, context.view.pool
        if not accounts.support.ok:
            raise RefusedError("unsupported", f"without exact accounts: {accounts.support.reason}")
        need(pool, "free_blocks", "_maybe_evict_cached_block")
        need(pool.blocks[-1], "prev_free_block", "next_free_block", "reset_hash")
        self._context, self._accounts, self._view, self._pool = context, accounts, context.view, pool

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return the blocks and the references that would be given back."""
        excess, shared = self._plan(arguments)
        return {
            "blocks": len(excess) - len(shared),
            "references": sum(excess.values()),
            "before_free_blocks": int(self._pool.get_num_free_blocks()),
        }

    def apply(self, arguments: Arguments) -> Done:
        """Give them back; there is no way back."""
        excess, shared = self._plan(arguments)
        pool, before = self._pool, int(self._pool.get_num_free_blocks())
        for block in excess:
            if block not in shared:
                pool._maybe_evict_cached_block(pool.blocks[block])
                pool.blocks[block].reset_hash()
        left = dict(excess)
        while left:
            pool.free_blocks([pool.blocks[block] for block in left])
            left = {block: by - 1 for block, by in left.items() if by > 1}
        self._accounts.request_audit()
        after = int(pool.get_num_free_blocks())
        return Done(
            {
                "blocks": len(excess) - len(shared),
                "references": sum(excess.values()),
                "before_free_blocks": before,
                "after_free_blocks": after,
            }
        )

    def _plan(self, arguments: Arguments) -> tuple[dict[int, int], set[int]]:
        """Return the references to give back by block, and which of the blocks requests hold too."""
        only(arguments, "age_seconds", "blocks")
        age = number(arguments, "age_seconds", 1.0, 86_400.0, 30.0)
        most = whole(arguments, "blocks", 1, MOST, MOST)
        self._check_safe()
        main, now = self._accounts.main, self._context.now()
        if main.audit is None or not main.watched:
            raise RefusedError("unsafe", "the audit is off")
        finding = main.audit.finding
        if finding.over_freed:
            raise RefusedError("unsafe", f"{finding.over_freed} blocks were freed too often: only a restart is safe")
        named = {b: by for b, by in finding.excess.items() if by > 0 and now - finding.since.get(b, now) >= age}
        excess = dict(list(named.items())[:most])
        if not excess:
            young = f", {finding.orphaned} are younger than {age:g} s" if finding.orphaned else ""
            raise RefusedError("nothing", f"no leaked block is known{young}")
        expected = self._explained(excess)
        for number_of, by in excess.items():
            block = self._pool.blocks[number_of]
            if block.ref_cnt != expected[number_of] + by:
                self._accounts.request_audit()
                raise RefusedError("unsafe", f"block {number_of} is not as it was named: it is audited again")
            if block.prev_free_block is not None or block.next_free_block is not None:
                raise RefusedError("unsafe", f"block {number_of} is in the free queue and has references")
        return excess, {block for block in excess if expected[block]}

    def _check_safe(self) -> None:
        scheduler, view = self._context.scheduler, self._view
        connector = getattr(scheduler, "connector", None)
        if connector is not None:
            raise RefusedError("unsafe", f"{type(connector).__name__} might still write to blocks that it has lost")
        if view.others or view.pins or view.unknown_pinners or getattr(scheduler, "defer_block_free", False):
            raise RefusedError("unsafe", "blocks are held in more ways than requests' tables here")

    def _explained(self, excess: dict[int, int]) -> Counter[int]:
        """Count what explains references on these blocks, in all that may hold any: O(table entries)."""
        expected: Counter[int] = Counter()
        sought = {id(self._pool.blocks[block]): block for block in excess}
        ids = frozenset(sought)
        for _owner, holder in self._view.holders():
            if not ids.isdisjoint(map(id, holder)):
                expected.update(sought[id(block)] for block in holder if id(block) in ids)
        return expected
