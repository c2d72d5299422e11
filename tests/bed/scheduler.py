"""A real vLLM scheduler with its real KV-cache manager and block pool, and no model: steps take microseconds.

Runs in the engine environment. Only the model's output is made up (one token for each request that has
computed its whole context); who holds which block is decided by vLLM's own code.
"""

from __future__ import annotations

import functools
import inspect
import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import numpy as np
import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

MODEL_DIR = Path(__file__).parents[2] / "build" / "tiny-model"
# The tiny model's special tokens are 0-2; prompts keep clear of them.
VOCAB = 512
FIRST_PLAIN_TOKEN = 3

Hasher = Callable[[Request], list[Any]]

# What differs between the versions of vLLM that `make compat` runs.
_NO_EOS: dict[str, Any] = {"eos_token_id": None} if "eos_token_id" in inspect.signature(Request).parameters else {}
_TAKES_ARRAYS = "ndarray" in str(ModelRunnerOutput.__dataclass_fields__["sampled_token_ids"].type)


def make_config(
    *,
    block_size: int,
    caching: bool = True,
    max_num_seqs: int = 256,
    tokens: int = 8192,
    max_model_len: int = 4096,
) -> VllmConfig:
    """Return a vLLM configuration for the tiny model on the CPU; ``tokens`` is the budget of one step."""
    return VllmConfig(
        model_config=ModelConfig(
            model=str(MODEL_DIR), skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=max_model_len
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=tokens,
            max_model_len=max_model_len,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=block_size, cache_dtype="auto", enable_prefix_caching=caching),
        device_config=DeviceConfig("cpu"),
    )


class BareEngine(SimpleNamespace):
    """What hooks can watch around a scheduler; unlike its base it can be referred to weakly, as engines can."""


def make_scheduler(
    num_blocks: int = 2000,
    block_size: int = 16,
    *,
    caching: bool = True,
    max_num_seqs: int = 256,
    tokens: int = 8192,
    sliding_window: int | None = None,
) -> Scheduler:
    """Return a scheduler over a pool of ``num_blocks`` blocks (block 0 is vLLM's null block).

    With ``sliding_window`` (in tokens) a second group of layers shares the pool, as in hybrid models.
    """
    shape: dict[str, Any] = {"block_size": block_size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    groups = [KVCacheGroupSpec(["full"], FullAttentionSpec(**shape))]
    if sliding_window is not None:
        groups.append(KVCacheGroupSpec(["window"], SlidingWindowSpec(**shape, sliding_window=sliding_window)))
    config = make_config(block_size=block_size, caching=caching, max_num_seqs=max_num_seqs, tokens=tokens)
    config.cache_config.num_gpu_blocks = num_blocks
    init_none_hash(sha256)
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups),
        block_size=block_size,
        log_stats=True,
        structured_output_manager=StructuredOutputManager(config),
    )


@functools.cache
def _hasher(block_size: int) -> Hasher:
    init_none_hash(sha256)
    return get_request_block_hasher(block_size, sha256)


def make_request(
    i: int,
    ntok: int,
    max_tokens: int = 64,
    shared_prefix: int = 0,
    *,
    block_size: int = 16,
    hasher: Hasher | None = None,
) -> Request:
    """Return request ``r<i>`` with a prompt of ``ntok`` tokens, of which the first ``shared_prefix`` are common.

    ``hasher`` hashes its blocks for prefix caching; the default fits ``make_scheduler``.
    """
    draw = random.Random(i)
    prompt = [FIRST_PLAIN_TOKEN + (k * 31) % (VOCAB - FIRST_PLAIN_TOKEN) for k in range(shared_prefix)]
    prompt += [draw.randrange(FIRST_PLAIN_TOKEN, VOCAB) for _ in range(ntok - shared_prefix)]
    return Request(
        request_id=f"r{i}",
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        pooling_params=None,
        block_hasher=hasher or _hasher(block_size),
        **_NO_EOS,
    )


def fake_output(scheduled: SchedulerOutput, requests: dict[str, Request], token: int = 5) -> ModelRunnerOutput:
    """Return what a model would for this step: one token per request whose context is computed, else none."""
    ids = list(scheduled.num_scheduled_tokens)
    tokens: list[Any] = [[token] if requests[i].num_computed_tokens >= requests[i].num_tokens else [] for i in ids]
    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
        sampled_token_ids=[np.array(sampled) for sampled in tokens] if _TAKES_ARRAYS else tokens,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )


def step(scheduler: Scheduler) -> SchedulerOutput:
    """Run one engine step: schedule, make up the model's output, update; return what was scheduled."""
    scheduled = scheduler.schedule()
    scheduler.update_from_output(scheduled, fake_output(scheduled, scheduler.requests))
    return scheduled
