"""Where we enter a worker: before it takes its device, and when its KV cache has been allocated.

All executors come by there: a worker in a process of its own, one inside its engine core, and one in a Ray actor each
have a wrapper of the same class. On the worker's thread, after that, there is only what
:mod:`engine_hooks.worker.failures` puts around a call: it has work to do when the call has raised.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from engine_hooks.guard import Guard
from engine_hooks.identity import Identity
from engine_hooks.member_link import MemberLink, attach, call_after, detach, member_of
from engine_hooks.members import WORKER
from engine_hooks.settings import Settings
from engine_hooks.torch.probe import of_process
from engine_hooks.worker.failures import watch_outputs, watch_work, watch_wrapper
from engine_hooks.worker.memory import follow, introduce, measure
from engine_hooks.wrapping import wrap

_guard = Guard()  # of this process


def install(settings: Settings) -> None:
    """Have every worker that comes up in this process, or in one forked from it, reported."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    guard = _guard

    def taking(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            # Before: what fails while weights are loaded must find somebody who tells of it.
            guard.run("worker", watch_wrapper, type(self), settings)
            guard.run("worker", enter, vars(self).get("worker"), settings)
            result = original(self, *args, **kwargs)
            guard.run("worker", watch_outputs, settings)
            guard.run("worker", present, vars(self).get("worker"))
            return result

        return wrapper

    def allocated(wrapper: Any, kv_cache_configs: Any) -> None:
        config = kv_cache_configs[getattr(wrapper, "global_rank", wrapper.rpc_rank)]
        watch(wrapper.worker, config, settings)

    def ended(wrapper: Any, *_args: Any, **_kwargs: Any) -> None:
        detach(vars(wrapper).get("worker"))

    call_after(WorkerWrapperBase, "initialize_from_config", allocated)
    if "shutdown" in vars(WorkerWrapperBase):
        call_after(WorkerWrapperBase, "shutdown", ended)
    if "init_device" in vars(WorkerWrapperBase):
        wrap(WorkerWrapperBase, "init_device", taking)
    watch_wrapper(WorkerWrapperBase, settings)


def enter(worker: Any, settings: Settings) -> MemberLink:
    """Report ``worker``, of which nothing is known yet but who it is; and what it fails of."""
    known = member_of(worker)
    if known is not None:
        return known
    watch_work(type(worker), settings)
    config = worker.vllm_config
    parallel = config.parallel_config
    # Engines of versions without an index say their rank instead.
    index = getattr(parallel, "data_parallel_index", None) or getattr(parallel, "data_parallel_rank", None) or 0
    identity = Identity.of_member(config, settings, WORKER, index, worker.rank)
    member = MemberLink(worker, identity, settings, lambda: None, of_process(settings), guards=(_guard,))
    attach(worker, member)
    return member


def present(worker: Any) -> None:
    """Say which device ``worker`` has taken."""
    row = introduce(worker)
    known = member_of(worker)
    if known is not None:
        known.renew(lambda: row)


def watch(worker: Any, kv_cache_config: Any, settings: Settings) -> MemberLink:
    """Report ``worker``, whose KV cache has just been allocated by ``kv_cache_config``; again: measure it anew."""
    read = follow(worker, measure(worker, kv_cache_config), _guard)
    member = enter(worker, settings)
    member.renew(read)
    return member
