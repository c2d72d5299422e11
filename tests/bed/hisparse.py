"""A real scheduler with vLLM's HiSparse connector: KV that lives in host memory, and pages of it that the GPU keeps.

HiSparse wants CUDA, and its configuration says so: here it is given to a configuration that has been checked already.
The scheduler's side, its coordinator and both block pools are vLLM's own and run as they do in an engine; no worker
runs, and what one would report is made up by the caller (``step`` and ``report``).

    scheduler = make_hisparse_scheduler(host_blocks=200)
    scheduler.add_request(make_request(0, 100))
    step(scheduler)                                       # its sealed pages are being written to the host
    step(scheduler, report(scheduler))                    # and have been
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.bed.connectors import deliver
from tests.bed.scheduler import make_config

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
import torch
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.hisparse.connector import HiSparseConnectorWorkerMetadata
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.hisparse.coordinator import HiSparseCoordinator
from vllm.v1.kv_cache_interface import (
    HiSparseHotSpec,
    HiSparseResidentSpec,
    KVCacheConfig,
    KVCacheGroupRole,
    KVCacheGroupSpec,
    MambaSpec,
    MLAAttentionSpec,
    SparseCacheRole,
)
from vllm.v1.structured_output import StructuredOutputManager

HOT_BLOCKS = 2  # of each request that reads from the host


def _groups(block_size: int, resident_groups: int, partial_hits: bool) -> list[KVCacheGroupSpec]:
    """The groups as vLLM lays them out: host pages, the indexer, resident pages, hot regions, whatever else."""
    shape: dict[str, Any] = {"block_size": block_size, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float32}
    source = MLAAttentionSpec(**shape)
    indexer = MLAAttentionSpec(**shape, cache_role=SparseCacheRole.INDEXER)
    page = {"block_size": block_size, "page_size": source.page_size_bytes}
    resident, hot = HiSparseResidentSpec(**page), HiSparseHotSpec(**page, blocks_per_request=HOT_BLOCKS)
    groups = [
        KVCacheGroupSpec(["source"], source, role=KVCacheGroupRole.HISPARSE_SOURCE, host_resident=True),
        KVCacheGroupSpec(["indexer"], indexer, role=KVCacheGroupRole.HISPARSE_INDEXER),
        *(KVCacheGroupSpec([f"resident{i}"], resident, enable_kv_transfer=False) for i in range(resident_groups)),
        *(KVCacheGroupSpec([f"hot{i}"], hot, enable_kv_transfer=False) for i in range(resident_groups)),
    ]
    if partial_hits:
        state: dict[str, Any] = {"shapes": ((page["page_size"] // 4,),), "dtypes": (torch.float32,)}
        groups.append(KVCacheGroupSpec(["mamba"], MambaSpec(block_size=block_size, mamba_cache_mode="align", **state)))
    return groups


def make_hisparse_scheduler(
    *,
    gpu_blocks: int = 100,
    host_blocks: int = 200,
    block_size: int = 16,
    tokens: int = 64,
    resident_groups: int = 1,
    partial_hits: bool = False,
    asynchronous: bool = False,
) -> Scheduler:
    """Return a scheduler over pools of ``gpu_blocks`` and ``host_blocks`` blocks; ``tokens`` is a step's budget.

    ``partial_hits``: prefix hits may end inside a block, which is then copied before it is written to. Blocks are
    hashed by halves then, for which vLLM wants a Mamba group too.
    """
    config = make_config(block_size=block_size, max_num_seqs=16, tokens=tokens)
    config.cache_config.num_gpu_blocks = gpu_blocks
    config.scheduler_config.async_scheduling = asynchronous
    config.kv_transfer_config = KVTransferConfig(
        kv_connector="HiSparseConnector", kv_role="kv_both", kv_connector_extra_config={"host_pool_gib": 1}
    )
    if partial_hits:
        config.cache_config.mamba_cache_mode = "align"
    init_none_hash(sha256)
    make = AsyncScheduler if asynchronous else Scheduler
    return make(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=gpu_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=_groups(block_size, resident_groups, partial_hits),
            hisparse_host_num_blocks=host_blocks,
        ),
        block_size=block_size,
        hash_block_size=block_size // 2 if partial_hits else None,
        log_stats=True,
        structured_output_manager=StructuredOutputManager(config),
    )


def coordinator_of(scheduler: Scheduler) -> HiSparseCoordinator:
    """Return the scheduler's HiSparse coordinator."""
    connector: Any = scheduler.connector
    coordinator: HiSparseCoordinator = connector.connector_scheduler.coordinator
    return coordinator


def report(
    scheduler: Scheduler, spills: Iterable[int] | None = None, copies: Iterable[int] | None = None
) -> HiSparseConnectorWorkerMetadata:
    """Return the worker's message that these spills (ids) and host copies (destinations) are done: by default, all."""
    coordinator = coordinator_of(scheduler)
    done = dict.fromkeys(list(coordinator.pending_spills) if spills is None else spills, 1)
    copied = tuple(coordinator._retained_copies if copies is None else copies)
    return HiSparseConnectorWorkerMetadata(done, done, copied)


def step(scheduler: Scheduler, message: HiSparseConnectorWorkerMetadata | None = None) -> SchedulerOutput:
    """Run one engine step whose worker reports ``message``; return what was scheduled."""
    scheduled = scheduler.schedule()
    deliver(scheduler, scheduled, worker_meta=message)
    return scheduled
