"""KV cache groups: what kind of attention each serves, what a block of it takes, and how many references it has."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from engine_hooks.core.kv_layout import copies_over_tensor_parallel, group_block_bytes, kind_of
from engine_hooks.core.observers import Context, UnsupportedError
from engine_hooks.core.pool_view import MAX_WALKED, count_nulls
from engine_hooks.detail import MAX_ROWS, GroupRow

# Their tables begin with placeholders and never go back to them: the border is found by halving.
_PREFIXED = ("SlidingWindowManager", "ChunkedLocalAttentionManager")


class GroupsObserver:
    """Fills ``groups``. What does not change is read once; the references are counted at each call."""

    HOOK = "groups"
    SECTION = "groups"

    def __init__(self, context: Context) -> None:
        self._managers = context.view.groups
        config = getattr(context.scheduler, "kv_cache_config", None)
        groups = list(getattr(config, "kv_cache_groups", None) or ())
        if not groups or len(groups) != len(self._managers):
            raise UnsupportedError("its KV cache configuration names no groups that match the block tables")
        parallel = getattr(getattr(context.scheduler, "vllm_config", None), "parallel_config", None)
        ranks = (
            int(getattr(parallel, "tensor_parallel_size", 1) or 1),
            int(getattr(parallel, "decode_context_parallel_size", 1) or 1),
        )
        pools = {id(pool.pool): pool.name for pool in (context.view, *context.view.others)}
        self._rows = [
            _fixed(number, config, group, pools.get(id(getattr(manager, "block_pool", None)), context.view.name), ranks)
            for number, (group, manager) in enumerate(zip(groups, self._managers, strict=True))
        ][:MAX_ROWS]

    def section(self, _now: float) -> tuple[GroupRow, ...]:
        """Return a row per group."""
        return tuple(
            GroupRow(**fixed, references=references(manager))
            for fixed, manager in zip(self._rows, self._managers, strict=False)
        )


def _fixed(number: int, config: Any, group: Any, pool: str, ranks: tuple[int, int]) -> dict[str, Any]:
    spec = group.kv_cache_spec
    copies = copies_over_tensor_parallel(_one(spec), *ranks)
    return {
        "group": number,
        "kind": kind_of(_one(spec)),
        "pool": pool,
        "layers": len(group.layer_names),
        "block_tokens": int(spec.block_size),
        "block_bytes": group_block_bytes(config, group),
        "replicated": copies == ranks[0] > 1,
        "copies": copies,
    }


def _one(spec: Any) -> Any:
    """A layer's spec: some versions keep one per layer, all of one kind."""
    by_layer = getattr(spec, "kv_cache_specs", None)
    return next(iter(by_layer.values())) if by_layer else spec


def references(manager: Any) -> int | None:
    """Table entries of one group, placeholders aside; None where counting them would take longer than a millisecond."""
    tables: Iterable[Sequence[Any]] = manager.req_to_blocks.values()
    entries = sum(map(len, tables))
    name = type(manager).__name__
    if name == "FullAttentionManager":
        return entries
    if name in _PREFIXED:
        return entries - sum(bisect_left(table, True, key=_is_block) for table in tables)
    if entries > MAX_WALKED:
        return None
    return entries - sum(map(count_nulls, tables))


def _is_block(block: Any) -> bool:
    return not block.is_null
