"""Real schedulers with a KV connector: vLLM's own connectors on the scheduler's side, and three of our own.

``make_connector_scheduler(name, ...)`` builds one; ``step(scheduler, sent=..., received=...)`` runs an engine step in
which the workers report finished transfers. No worker runs: what a worker would tell is made up by the caller, with
``finish_jobs`` for the jobs of the two offloading connectors.

    scheduler = make_connector_scheduler("RemoteConnector", role="kv_both")
    scheduler.add_request(make_remote_request(0, 64, prefill="peer-a"))   # WAITING_FOR_REMOTE_KVS after one step
    step(scheduler)
    step(scheduler, received=["r0"])                                      # its KV has come: it runs in the next step

Known here: SimpleCPUOffloadConnector, OffloadingConnector, ExampleConnector, NixlConnector (its scheduler's side needs
no nixl), MultiConnector over any of them, and from this module RemoteConnector, QuietConnector and OpaqueConnector.
Any other name is taken from vLLM's registry, or from ``module``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from tests.bed.scheduler import fake_output, make_config, make_request

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
import torch
from vllm.config import KVTransferConfig, SchedulerConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, SupportsHMA
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata
from vllm.v1.structured_output import StructuredOutputManager

LAYER = "model.layers.0.self_attn"
OWN = ("RemoteConnector", "QuietConnector", "OpaqueConnector")
_ENDED: Any = SimpleNamespace(num_computed_tokens=0, num_tokens=0)


class QuietConnector(KVConnectorBase_V1, SupportsHMA):
    """A connector that does nothing at all: what every other of ours starts from."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """No worker runs here."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """No worker runs here."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """No worker runs here."""

    def wait_for_save(self) -> None:
        """No worker runs here."""

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Know of no KV elsewhere."""
        return 0, False

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        """Keep nothing."""

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        """Tell workers nothing."""
        return KVConnectorMetadata()

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Let a finished request's blocks go at once."""
        return False, None

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Let a finished request's blocks go at once."""
        return self.request_finished(request, block_ids[0])


class RemoteConnector(QuietConnector):
    """Both ends of disaggregated prefill, steered by a request's ``kv_transfer_params``.

    ``do_remote_prefill``: the prompt's whole blocks come from elsewhere, loaded asynchronously
    (WAITING_FOR_REMOTE_KVS until ``step(received=...)``). ``do_remote_decode``: its blocks stay when it has finished,
    until ``step(sent=...)``. An aborted send is delayed as well.
    """

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Return the whole blocks of a remote prefill, once per request."""
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_prefill"):
            return 0, False
        size = self._vllm_config.cache_config.block_size
        found = (request.num_prompt_tokens - 1) // size * size - num_computed_tokens
        return max(0, found), found > 0

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        """Load only once: afterwards the rest is computed here."""
        if request.kv_transfer_params:
            request.kv_transfer_params["do_remote_prefill"] = False

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Keep the blocks of a request that somebody else is to decode."""
        return bool((request.kv_transfer_params or {}).get("do_remote_decode")), None


class OpaqueConnector(QuietConnector):
    """A connector that nobody knows: ``pin`` takes references on blocks in no book that could be read."""

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """Keep the pool."""
        self.pool = gpu_block_pool

    def pin(self, blocks: list[Any]) -> None:
        """Take one reference on each block, as an offload job does."""
        self.pool.touch(blocks)

    def unpin(self, blocks: list[Any]) -> None:
        """Give the references back."""
        self.pool.free_blocks(blocks)


def make_connector_scheduler(
    name: str,
    role: str = "kv_both",
    extra_config: dict[str, Any] | None = None,
    *,
    num_blocks: int = 200,
    block_size: int = 16,
    max_num_seqs: int = 256,
    tokens: int = 8192,
    module: str | None = None,
    asynchronous: bool = False,
    engine_id: str | None = None,
) -> Scheduler:
    """Return a real scheduler with the connector ``name`` in ``role`` (kv_producer, kv_consumer or kv_both).

    ``extra_config`` is the connector's own configuration; both CPU offloading connectors need ``cpu_bytes_to_use``,
    and one block of this pool is ``block_bytes(block_size)``. ``module`` is where a connector outside vLLM's registry
    lives. ``asynchronous``: with async scheduling, where frees are deferred while a step is in flight. ``engine_id``:
    what peers call this engine; the default is drawn.
    """
    if name in OWN:
        module = __name__
    transfer = KVTransferConfig(
        kv_connector=name,
        engine_id=engine_id,
        kv_role=role,
        kv_connector_extra_config=extra_config or {},
        kv_connector_module_path=module,
    )
    base = make_config(block_size=block_size, max_num_seqs=max_num_seqs, tokens=tokens)
    base.cache_config.num_gpu_blocks = num_blocks
    config = VllmConfig(
        model_config=base.model_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=tokens,
            max_model_len=base.model_config.max_model_len,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=asynchronous,
            disable_hybrid_kv_cache_manager=not KVConnectorFactory.supports_hma_config(transfer),
        ),
        cache_config=base.cache_config,
        device_config=base.device_config,
        kv_transfer_config=transfer,
    )
    config.scheduler_config.async_scheduling = asynchronous  # the CPU platform turns it off
    init_none_hash(sha256)
    make = AsyncScheduler if asynchronous else Scheduler
    return make(
        vllm_config=config,
        kv_cache_config=_cache_config(num_blocks, block_size),
        block_size=block_size,
        log_stats=True,
        structured_output_manager=StructuredOutputManager(config),
    )


def block_bytes(block_size: int = 16) -> int:
    """Return the bytes of one block of these schedulers' pools."""
    return _spec(block_size).page_size_bytes


def _spec(block_size: int) -> FullAttentionSpec:
    # A page of 4 KiB: offloading spaces round each chunk up to a page of memory.
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=512 // block_size, dtype=torch.float32)


def _cache_config(num_blocks: int, block_size: int) -> KVCacheConfig:
    spec = _spec(block_size)
    tensor = KVCacheTensor(
        size=spec.page_size_bytes * num_blocks,
        layers=[LAYER],
        layer_stride=spec.page_size_bytes * num_blocks,
        block_stride=spec.page_size_bytes,
    )
    group = KVCacheGroupSpec([LAYER], spec)
    return KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[tensor], kv_cache_groups=[group])


def make_remote_request(
    i: int,
    ntok: int,
    max_tokens: int = 64,
    *,
    prefill: str | None = None,
    decode: bool = False,
    block_size: int = 16,
    **params: Any,
) -> Request:
    """Return request ``r<i>`` whose KV comes from the peer ``prefill``, or goes to whoever decodes it.

    Its ``kv_transfer_params`` are those that vLLM's proxies send; ``params`` come on top.
    """
    request = make_request(i, ntok, max_tokens, block_size=block_size)
    request.kv_transfer_params = {"do_remote_prefill": prefill is not None, "do_remote_decode": decode}
    if prefill is not None:
        request.kv_transfer_params |= {
            "remote_engine_id": prefill,
            "remote_request_id": f"remote-{i}",
            "remote_block_ids": [list(range(1, (ntok - 1) // block_size + 1))],
            "remote_host": "127.0.0.1",
            "remote_port": 1,
            "tp_size": 1,
        }
    request.kv_transfer_params |= params
    return request


def step(
    scheduler: Scheduler,
    *,
    sent: Iterable[str] = (),
    received: Iterable[str] = (),
    failed: Iterable[str] = (),
    invalid_blocks: Iterable[int] = (),
    worker_meta: Any = None,
) -> SchedulerOutput:
    """Run one engine step in which the workers report transfers; return what was scheduled.

    ``sent`` and ``received``: ids of requests whose KV has gone or come. ``failed`` (ids) and ``invalid_blocks``: loads
    that went wrong. ``worker_meta``: a connector's own message from its workers (see ``finish_jobs``).
    """
    scheduled = scheduler.schedule()
    deliver(
        scheduler,
        scheduled,
        sent=sent,
        received=received,
        failed=failed,
        invalid_blocks=invalid_blocks,
        worker_meta=worker_meta,
    )
    return scheduled


def deliver(
    scheduler: Scheduler,
    scheduled: SchedulerOutput,
    *,
    sent: Iterable[str] = (),
    received: Iterable[str] = (),
    failed: Iterable[str] = (),
    invalid_blocks: Iterable[int] = (),
    worker_meta: Any = None,
) -> None:
    """Take in the output of a step that was scheduled before: several may be in flight with async scheduling."""
    # A model knows nothing of requests that were aborted while it ran.
    requests = {i: scheduler.requests.get(i, _ENDED) for i in scheduled.num_scheduled_tokens}
    output = fake_output(scheduled, requests)
    output.kv_connector_output = KVConnectorOutput(
        finished_sending=set(sent),
        finished_recving=set(received),
        failed_recving=set(failed),
        invalid_block_ids=set(invalid_blocks),
        kv_connector_worker_meta=worker_meta,
    )
    scheduler.update_from_output(scheduled, output)


def finish_jobs(connector: Any, jobs: Iterable[int] | None = None) -> Any:
    """Return the workers' message that jobs are done: all that are under way, or ``jobs``.

    For SimpleCPUOffloadConnector jobs are store events (its loads are reported by ``step(received=...)``), for
    OffloadingConnector transfer jobs of both directions.
    """
    manager = getattr(connector, "scheduler_manager", None)
    if manager is not None:
        pending = itertools.chain(manager._store_event_to_blocks, manager._abandoned_store_event_to_blocks)
        return SimpleCPUOffloadWorkerMetadata(dict.fromkeys(pending if jobs is None else jobs, 1))
    pending = connector.connector_scheduler._jobs
    return OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(pending if jobs is None else jobs, 1))
