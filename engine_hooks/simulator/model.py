"""vLLM's real scheduler for a spec, without a model: its configuration, and the KV cache that a worker would report."""

from __future__ import annotations

import inspect
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from engine_hooks.simulator.spec import Engine, SpecError

VOCABULARY = 512
# The rest of an 8-billion-parameter model's shape: what makes a block as large as it is.
KV_HEADS, HEAD_SIZE = 8, 128
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}
_CONNECTORS = {"remote": "RemoteConnector", "opaque": "OpaqueConnector"}


def longest_context(engine: Engine) -> int:
    """Tokens that one request may have: a longer one than the pool could never be served."""
    return engine.blocks * engine.block_size


def make_scheduler(engine: Engine) -> Any:
    """Return a scheduler, with its real KV cache manager and block pool."""
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.structured_output import StructuredOutputManager

    config = _config(engine)
    config.cache_config.num_gpu_blocks = engine.blocks + 1  # vLLM's null block is one of them
    init_none_hash(sha256)
    extra: dict[str, Any] = {}
    if "block_size" in inspect.signature(Scheduler.__init__).parameters:
        extra["block_size"] = engine.block_size
    scheduler = Scheduler(
        vllm_config=config,
        kv_cache_config=_cache(engine),
        log_stats=False,
        structured_output_manager=StructuredOutputManager(config),
        **extra,
    )
    if engine.watermark is not msgspec.UNSET:
        if not hasattr(scheduler.kv_cache_manager, "watermark_blocks"):
            raise SpecError("watermark: this vLLM's KV cache manager has none")
        scheduler.kv_cache_manager.watermark_blocks = int(engine.watermark * engine.blocks)
    return scheduler


def make_hasher(engine: Engine) -> Any:
    """Return what hashes a request's blocks for prefix caching; None without it."""
    if not engine.caching:
        return None
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher

    return get_request_block_hasher(engine.block_size, sha256)


def _config(engine: Engine) -> Any:
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        KVTransferConfig,
        ModelConfig,
        ParallelConfig,
        SchedulerConfig,
        SpeculativeConfig,
        VllmConfig,
    )

    longest = longest_context(engine)
    with tempfile.TemporaryDirectory(prefix="kvtide-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps({**_CONFIG, "max_position_embeddings": longest}))
        model = ModelConfig(
            model=folder, skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=longest,
            served_model_name=engine.name,
        )  # fmt: skip
        parts: dict[str, Any] = {}
        if engine.drafts:
            parts["speculative_config"] = SpeculativeConfig(
                method="ngram",
                num_speculative_tokens=engine.drafts,
                prompt_lookup_max=3,
                target_model_config=model,
                target_parallel_config=ParallelConfig(),
            )
        if engine.connector in _CONNECTORS:
            parts["kv_transfer_config"] = KVTransferConfig(
                kv_connector=_CONNECTORS[engine.connector],
                engine_id="simulator",
                kv_role="kv_both",
                kv_connector_module_path="engine_hooks.simulator.connectors",
            )
        return VllmConfig(
            model_config=model,
            scheduler_config=SchedulerConfig(
                max_num_seqs=engine.running,
                max_num_batched_tokens=max(engine.step_tokens, engine.running * (1 + engine.drafts)),
                max_model_len=longest,
                enable_chunked_prefill=True,
                is_encoder_decoder=False,
                async_scheduling=False,
                policy="priority" if engine.priority else "fcfs",
            ),
            cache_config=CacheConfig(
                block_size=engine.block_size, cache_dtype="auto", enable_prefix_caching=engine.caching
            ),
            device_config=DeviceConfig("cpu"),
            **parts,
        )


def _cache(engine: Engine) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor

    spec = FullAttentionSpec(
        block_size=engine.block_size, num_kv_heads=KV_HEADS, head_size=HEAD_SIZE, dtype=torch.bfloat16
    )
    blocks, page = engine.blocks + 1, spec.page_size_bytes
    layers = [f"model.layers.{number}.self_attn" for number in range(engine.layers)]
    if "layers" in inspect.signature(KVCacheTensor).parameters:
        one = {"layers": layers, "layer_stride": page * blocks, "block_stride": page}
        tensors = [KVCacheTensor(size=page * blocks * len(layers), **one)]
    else:
        tensors = [KVCacheTensor(size=page * blocks, shared_by=[layer]) for layer in layers]
    return KVCacheConfig(num_blocks=blocks, kv_cache_tensors=tensors, kv_cache_groups=[KVCacheGroupSpec(layers, spec)])
