"""What stands against moving blocks: of this engine for good, and of this moment."""

from __future__ import annotations

from typing import Any

from engine_hooks.core.levers.arguments import need
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.elastic import refuse_elastic
from engine_hooks.levers.base import RefusedError

# They only say who comes in, or in which order cached blocks are reused.
_BESIDE = frozenset({"compact", "watermark", "active_cap", "enforce_admission", "hold_hot"})


def check_engine(context: LeverContext) -> None:
    """Refuse, as unsupported, an engine on which blocks can't be moved, or whose accounts would not show it."""
    view, scheduler, engine = context.view, context.scheduler, context.engine
    accounts = context.accounts
    refuse_elastic(view.pool)
    if not accounts.support.ok:
        raise RefusedError("unsupported", f"without exact accounts: {accounts.support.reason}")
    if len(view.groups) != 1 or view.others or type(view.groups[0]).__name__ != "FullAttentionManager":
        raise RefusedError("unsupported", "groups: only one group of layers with full attention can be moved")
    pool = view.pool
    need(pool, "blocks", "free_block_queue", "num_gpu_blocks", "_maybe_evict_cached_block", "move_block_hashes")
    need(pool.free_block_queue, "fake_free_list_head", "fake_free_list_tail", "remove", "prepend_n", "num_free_blocks")
    need(pool.blocks[-1], "prev_free_block", "next_free_block", "block_hash")
    need(scheduler.kv_cache_manager.coordinator, "get_num_blocks_to_allocate")
    need(engine, "step_fn", "batch_queue", "model_executor")
    parallel: Any = getattr(getattr(engine, "vllm_config", None), "parallel_config", None)
    if int(getattr(parallel, "data_parallel_size", 1) or 1) > 1:
        raise RefusedError("unsupported", "data-parallel ranks run in lockstep: one of them can't stop for a moment")


def check_now(context: LeverContext, in_force: tuple[str, ...] = ()) -> None:
    """Refuse, as unsafe, while somebody may hold or write blocks beside the tables, or the accounts are not clean."""
    scheduler, view = context.scheduler, context.view
    connector = getattr(scheduler, "connector", None)
    if connector is not None:
        raise RefusedError("unsafe", f"connector: {type(connector).__name__} may read and write blocks by their place")
    if view.pins or view.unknown_pinners:
        raise RefusedError("unsafe", "connector: blocks are held in more ways than requests' tables here")
    if getattr(context.engine.model_executor, "is_sleeping", False):
        raise RefusedError("unsafe", "sleeping: the KV cache is not there")
    others = [lever for lever in in_force if lever not in _BESIDE]
    if others:
        raise RefusedError("conflict", f"in force: {', '.join(others)}")
    main = context.accounts.main
    if main.audit is None or not main.watched:
        raise RefusedError("unsafe", "audit: it is off")
    judgement = main.judge()
    if judgement.orphaned or judgement.over_freed or not judgement.exact:
        main.audit.request()
        raise RefusedError(
            "unsafe",
            f"audit: {judgement.orphaned} blocks orphaned, {judgement.over_freed} over-freed"
            f"{'' if judgement.exact else ', and not all is named yet'}",
        )


def pending(context: LeverContext) -> str:
    """Return what must be over before a block is moved, and will be by itself; empty where nothing is."""
    if context.view.deferred():
        return "deferred: blocks wait for a step in flight"
    if context.view.pending_copies():
        return "copies: blocks are about to be copied before they are written"
    if context.engine.batch_queue:
        return "in flight: a step has not come back"
    return ""
