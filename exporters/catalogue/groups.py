"""KV cache groups, and block pools beside the main one."""

from __future__ import annotations

from exporters.catalogue.base import Metric

_GROUP = ("engine", "group", "kind")
_POOL = ("engine", "pool")

GROUP_REFERENCES = Metric(
    "kvtide_kv_group_references",
    "gauge",
    "references",
    _GROUP,
    "Entries of a KV cache group's block tables; a shared block counts once per holder. Absent where counting is slow.",
    detail=True,
)
GROUP_BLOCK_BYTES = Metric(
    "kvtide_kv_group_block_bytes",
    "gauge",
    "bytes",
    _GROUP,
    "What a group's layers fill of one block on one rank, scales included; the pool's block fits its largest group.",
    detail=True,
)
GROUP_BLOCK_TOKENS = Metric(
    "kvtide_kv_group_block_tokens",
    "gauge",
    "tokens",
    _GROUP,
    "Tokens that one block of a KV cache group has room for.",
    detail=True,
)
GROUP_LAYERS = Metric(
    "kvtide_kv_group_layers", "gauge", "layers", _GROUP, "Layers that share a group's block tables.", detail=True
)
GROUP_COPIES = Metric(
    "kvtide_kv_group_copies",
    "gauge",
    "ranks",
    _GROUP,
    "Tensor-parallel ranks that keep the same bytes: a sum over ranks counts them so often.",
    detail=True,
)
GROUP_REPLICATED = Metric(
    "kvtide_kv_group_replicated",
    "gauge",
    "boolean",
    _GROUP,
    "1 where all tensor-parallel ranks keep the same bytes: they must not be added up over ranks.",
    detail=True,
)

POOL_CAPACITY = Metric(
    "kvtide_pool_blocks_capacity", "gauge", "blocks", _POOL, "Usable blocks of a pool beside the main one.", detail=True
)
POOL_HELD = Metric(
    "kvtide_pool_blocks_held", "gauge", "blocks", _POOL, "Blocks of that pool that are held.", detail=True
)
POOL_ORPHANED = Metric(
    "kvtide_pool_blocks_orphaned",
    "gauge",
    "blocks",
    _POOL,
    "Held blocks of that pool that nothing explains: leaked. Absent where it can't be known.",
)
POOL_OVER_FREED = Metric(
    "kvtide_pool_blocks_over_freed",
    "gauge",
    "blocks",
    _POOL,
    "Blocks of that pool with fewer references than their holders expect.",
)
