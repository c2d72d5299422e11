"""KV cache groups against vLLM's own planner and allocator: bytes per block, kinds, copies, references."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1 import kv_cache_interface as interface
from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config, get_kv_cache_configs
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

from engine_hooks.core.groups import GroupsObserver, references
from engine_hooks.core.kv_layout import (
    allocated_bytes,
    copies_over_tensor_parallel,
    group_block_bytes,
    kind_of,
    pool_block_bytes,
)
from engine_hooks.core.pool_view import MAX_WALKED
from engine_hooks.worker.memory import storage_bytes, tensors_in
from tests.bed.scheduler import make_config, make_request, make_scheduler, step
from tests.engine.observing import Watched

BLOCK = 16
MEMORY = 4_000_000  # bytes for the KV cache of one rank
HEADS = {"block_size": BLOCK, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float16}
LATENT = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 72, "dtype": torch.bfloat16}

Specs = dict[str, KVCacheSpec]


def full(**changes: Any) -> FullAttentionSpec:
    return FullAttentionSpec(**HEADS | changes)


def window(**changes: Any) -> SlidingWindowSpec:
    return SlidingWindowSpec(**HEADS | {"sliding_window": 64} | changes)


def mamba(**changes: Any) -> MambaSpec:
    return MambaSpec(**{"block_size": 512, "shapes": ((3, 8), (16, 4)), "dtypes": (torch.float32,) * 2} | changes)


def plan(specs: Specs, layout: str) -> KVCacheConfig:
    """What vLLM plans for one rank with these layers."""
    config = make_config(block_size=BLOCK, max_model_len=256)
    config.cache_config.kv_cache_layout = layout
    (planned,) = get_kv_cache_configs(config, [dict(specs)], [MEMORY])
    return planned


def page(group: Any, layer: str) -> int:
    spec = group.kv_cache_spec
    return int(getattr(spec, "kv_cache_specs", {}).get(layer, spec).page_size_bytes)


MODELS: dict[str, Callable[[], Specs]] = {
    "one kind": lambda: {f"l{i}": full() for i in range(4)},
    "fp8, one scale": lambda: {
        f"l{i}": full(dtype=torch.uint8, kv_quant_mode=interface.KVQuantMode.FP8_PER_TENSOR) for i in range(4)
    },
    "fp8, scales in the page": lambda: {
        f"l{i}": full(
            dtype=torch.uint8, kv_quant_mode=interface.KVQuantMode.FP8_PER_TOKEN_HEAD, state_content_bytes=2 * 32 + 8
        )
        for i in range(4)
    },
    "sliding windows": lambda: {f"l{i}": full() if i % 4 == 3 else window() for i in range(8)},
    "chunks": lambda: {
        f"l{i}": full() if i % 4 == 3 else ChunkedLocalAttentionSpec(**HEADS, attention_chunk_size=64) for i in range(8)
    },
    "unequal groups": lambda: {"l0": full(), "l1": full(), **{f"w{i}": window() for i in range(5)}},
    "mamba": lambda: {"l0": full(), **{f"m{i}": mamba() for i in range(3)}},
    "mla": lambda: {f"l{i}": MLAAttentionSpec(**LATENT) for i in range(4)},
    "mla with an indexer": lambda: {
        f"l{i}{part}": MLAAttentionSpec(**LATENT | {"head_size": size})
        for i in range(3)
        for part, size in (("", 72), ("x", 16))
    },
}
MIXED = {"mla with an indexer", "mamba"}  # pages that differ inside a block


@pytest.mark.parametrize("layout", ["LBNHC", "BLHNC", "BHLNC"])
@pytest.mark.parametrize("model", MODELS)
def test_bytes_are_those_that_vllm_plans(model: str, layout: str) -> None:
    if model in MIXED and layout == "BHLNC":
        pytest.skip("vLLM refuses this layout for pages that differ")
    planned = plan(MODELS[model](), layout)
    seen = generate_scheduler_kv_cache_config([planned])  # what an engine core has: one spec per group
    bytes_per_block = pool_block_bytes(seen)
    assert bytes_per_block is not None
    assert allocated_bytes(planned) == bytes_per_block * planned.num_blocks
    assert MEMORY - bytes_per_block < allocated_bytes(planned) <= MEMORY
    groups = [group_block_bytes(seen, group) for group in seen.kv_cache_groups]
    assert groups == [sum(page(group, name) for name in group.layer_names) for group in planned.kv_cache_groups]
    assert max(groups) == bytes_per_block


@pytest.mark.parametrize("model", MODELS)
def test_bytes_are_those_that_a_worker_allocates(model: str) -> None:
    utils = pytest.importorskip("vllm.v1.worker.utils")
    planned = plan(MODELS[model](), "LBNHC")
    caches = utils.allocate_kv_cache(planned, torch.device("cpu"), interface.KVCacheLayout.LBNHC)
    assert caches.keys() == set(MODELS[model]())
    bytes_per_block = pool_block_bytes(generate_scheduler_kv_cache_config([planned]))
    assert storage_bytes(tensors_in(list(caches.values()))) == bytes_per_block * planned.num_blocks
    # As each layer lies on the same storage, adding up the layers would count it several times.
    assert storage_bytes(tensors_in([caches, caches])) == storage_bytes(tensors_in(caches))


def test_scales_are_in_the_page() -> None:
    without, scaled = MODELS["fp8, one scale"](), MODELS["fp8, scales in the page"]()
    sizes = [group_block_bytes(p, p.kv_cache_groups[0]) for p in (plan(without, "LBNHC"), plan(scaled, "LBNHC"))]
    # Two float32 scales (one of K, one of V) for each token and head.
    assert sizes == [4 * BLOCK * 2 * 64, 4 * BLOCK * 2 * (64 + 8)]


def older(size: int, layers: list[list[str]], **more: Any) -> SimpleNamespace:
    """A configuration as versions before the ``layers`` field plan it."""
    offsets = more.pop("offsets", [0] * len(layers))
    tensors = [
        SimpleNamespace(size=size, shared_by=names, offset=o, **more) for names, o in zip(layers, offsets, strict=True)
    ]
    spec = SimpleNamespace(page_size_bytes=100, block_size=BLOCK)
    groups = [SimpleNamespace(layer_names=["a", "b"], kv_cache_spec=spec)]
    return SimpleNamespace(num_blocks=10, kv_cache_tensors=tensors, kv_cache_groups=groups)


def test_separate_tensors_add_up() -> None:
    config = older(1000, [["a", "c"], ["b", "d"]], block_stride=0)
    assert (pool_block_bytes(config), group_block_bytes(config, config.kv_cache_groups[0])) == (200, 200)


def test_packed_tensors_repeat_the_size_of_their_allocation() -> None:
    config = older(2500, [["a"], ["b"], ["c"]], block_stride=250, offsets=[0, 100, 200])
    assert (pool_block_bytes(config), group_block_bytes(config, config.kv_cache_groups[0])) == (250, 200)
    uneven = older(2500, [["a"], ["b"], ["c"]], block_stride=250, offsets=[0, 150, 200])
    assert (pool_block_bytes(uneven), group_block_bytes(uneven, uneven.kv_cache_groups[0])) == (250, None)


def test_no_cache_is_no_size() -> None:
    config = KVCacheConfig(num_blocks=1, kv_cache_tensors=[], kv_cache_groups=[])
    assert (allocated_bytes(config), pool_block_bytes(config), pool_block_bytes(None)) == (0, None, None)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (full(), "full_attention"),
        (window(), "sliding_window"),
        (ChunkedLocalAttentionSpec(**HEADS, attention_chunk_size=64), "chunked_local_attention"),
        (mamba(), "mamba"),
        (MLAAttentionSpec(**LATENT), "mla"),
        (interface.SlidingWindowMLASpec(**LATENT, sliding_window=64), "sliding_window_mla"),
        (interface.SinkFullAttentionSpec(**HEADS, sink_len=16), "sink_full_attention"),
        (interface.EncoderOnlyAttentionSpec(**HEADS), "encoder_only_attention"),
        (interface.CrossAttentionSpec(**HEADS), "cross_attention"),
        (SimpleNamespace(), "SimpleNamespace"),
    ],
)
def test_kinds(spec: object, kind: str) -> None:
    assert kind_of(spec) == kind


@pytest.mark.parametrize(
    ("spec", "context", "copies"),
    [
        (full(), 1, 1),
        (mamba(), 1, 1),
        (mamba(tp_replicated=True), 1, 4),
        (MLAAttentionSpec(**LATENT), 1, 4),
        (MLAAttentionSpec(**LATENT, max_tp_shards=1), 1, 4),
        (MLAAttentionSpec(**LATENT, max_tp_shards=2), 1, 2),
        (MLAAttentionSpec(**LATENT, max_tp_shards=1), 4, 1),
        (MLAAttentionSpec(**LATENT, max_tp_shards=1, dcp_sharded=False), 4, 4),
    ],
)
def test_copies_over_four_tensor_parallel_ranks(spec: KVCacheSpec, context: int, copies: int) -> None:
    assert copies_over_tensor_parallel(spec, 4, context) == copies


def test_rows_follow_a_real_schedulers_tables() -> None:
    watched = Watched(make_scheduler(400, BLOCK, sliding_window=48), GroupsObserver)
    scheduler = watched.scheduler
    assert [row.references for row in watched.look()] == [0, 0]
    draw = random.Random(5)
    for i in range(24):
        scheduler.add_request(make_request(i, draw.randrange(60, 300), 40, 32))
        step(scheduler)
    let_go = 0
    for _ in range(60):
        managers = scheduler.kv_cache_manager.coordinator.single_type_managers
        counted = [sum(not b.is_null for t in m.req_to_blocks.values() for b in t) for m in managers]
        rows = watched.look()
        assert [row.references for row in rows] == counted
        assert [(row.group, row.kind, row.pool, row.layers, row.block_tokens) for row in rows] == [
            (0, "full_attention", "gpu", 1, BLOCK),
            (1, "sliding_window", "gpu", 1, BLOCK),
        ]
        assert [row.block_bytes for row in rows] == [2 * BLOCK * 4] * 2
        if rows[1].references:
            let_go = max(let_go, rows[0].references - rows[1].references)
        step(scheduler)
    assert let_go > 0, "the window must have let go of blocks, or nothing was tested"


class OtherManager:
    """A sparse kind that we do not know: its placeholders may be anywhere."""

    def __init__(self, entries: int) -> None:
        self.req_to_blocks = {"r": [SimpleNamespace(is_null=i % 3 == 0) for i in range(entries)]}


def test_a_walk_has_a_bound() -> None:
    assert references(OtherManager(9)) == 6
    assert references(OtherManager(MAX_WALKED + 1)) is None
