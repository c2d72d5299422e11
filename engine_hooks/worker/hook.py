"""Where we enter a worker: when its KV cache has been allocated. All executors come by there.

A worker in a process of its own, one inside its engine core, and one in a Ray actor: each has a wrapper of the same
class. After that nothing of ours runs on the worker's thread.
"""

from __future__ import annotations

from typing import Any

from engine_hooks.identity import Identity
from engine_hooks.member_link import MemberLink, attach, call_after, detach, member_of
from engine_hooks.members import WORKER
from engine_hooks.settings import Settings
from engine_hooks.worker.memory import measure


def install(settings: Settings) -> None:
    """Have every worker that comes up in this process, or in one forked from it, reported."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    def allocated(wrapper: Any, kv_cache_configs: Any) -> None:
        config = kv_cache_configs[getattr(wrapper, "global_rank", wrapper.rpc_rank)]
        watch(wrapper.worker, config, settings)

    def ended(wrapper: Any, *_args: Any, **_kwargs: Any) -> None:
        detach(vars(wrapper).get("worker"))

    call_after(WorkerWrapperBase, "initialize_from_config", allocated)
    if "shutdown" in vars(WorkerWrapperBase):
        call_after(WorkerWrapperBase, "shutdown", ended)


def watch(worker: Any, kv_cache_config: Any, settings: Settings) -> MemberLink:
    """Report ``worker``, whose KV cache has just been allocated by ``kv_cache_config``; again: measure it anew."""
    row = measure(worker, kv_cache_config)

    def read() -> Any:
        return row

    known = member_of(worker)
    if known is not None:
        known.read = read
        return known
    config = worker.vllm_config
    parallel = config.parallel_config
    # Engines of versions without an index say their rank instead.
    index = getattr(parallel, "data_parallel_index", None) or getattr(parallel, "data_parallel_rank", None) or 0
    member = MemberLink(worker, Identity.of_member(config, settings, WORKER, index, worker.rank), settings, read)
    attach(worker, member)
    return member
