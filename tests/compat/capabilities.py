"""What a vLLM may have or lack that the hooks read or act on: one probe each, and what is lost without it.

Imports no vLLM: the page is made in the agent's environment too. Probes get real objects of the version at hand.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.levers.context import CoreLever, LeverContext
from engine_hooks.core.levers.registry import LEVERS
from engine_hooks.core.taps import Taps
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.levers.base import RefusedError
from engine_hooks.settings import Settings
from engine_hooks.wire import Support


@dataclass(frozen=True, slots=True)
class Subject:
    """One version's objects. ``accounts`` and ``hybrid`` watch one group of layers, and one beside sliding windows;
    ``scheduler`` is that of ``engine``, an EngineCore; ``process`` is its class with a busy loop.
    """

    accounts: KVAccounts
    hybrid: KVAccounts
    engine: Any
    process: type
    request: type
    sampling: type

    @property
    def scheduler(self) -> Any:
        return self.engine.scheduler

    @property
    def manager(self) -> Any:
        return self.scheduler.kv_cache_manager

    @property
    def table(self) -> Any:
        return self.manager.coordinator.single_type_managers[0]


@dataclass(frozen=True, slots=True)
class Capability:
    """``name`` is a row of the page; ``without`` says what follows where ``probe`` says no."""

    name: str
    without: str
    probe: Callable[[Subject], Support]


def _has(find: Callable[[Subject], Any], *names: str) -> Callable[[Subject], Support]:
    def probe(subject: Subject) -> Support:
        owner = find(subject)
        for name in names:
            if not hasattr(owner, name):
                kind = owner if isinstance(owner, type) else type(owner)
                return Support(ok=False, reason=f"{kind.__name__} has no {name}")
        return Support(ok=True)

    return probe


def _takes(find: Callable[[Subject], Any], method: str, argument: str) -> Callable[[Subject], Support]:
    def probe(subject: Subject) -> Support:
        owner = find(subject)
        kind = owner if isinstance(owner, type) else type(owner)
        function = getattr(owner, method, None)
        if function is None:
            return Support(ok=False, reason=f"{kind.__name__} has no {method}")
        if argument in inspect.signature(function).parameters:
            return Support(ok=True)
        called = kind.__name__ if method == "__init__" else f"{kind.__name__}.{method}"
        return Support(ok=False, reason=f"{called} takes no {argument}")

    return probe


def _sizes(subject: Subject) -> Support:
    info = SchedulerView(subject.scheduler).pool_info()
    if info is None or not info.block_bytes or not info.block_tokens:
        return Support(ok=False, reason=f"sizes are not known: {info}")
    return Support(ok=True)


def _scheduler(subject: Subject) -> Any:
    return subject.scheduler


def _manager(subject: Subject) -> Any:
    return subject.manager


def _pool(subject: Subject) -> Any:
    return subject.manager.block_pool


def _process(subject: Subject) -> Any:
    return subject.process


class _InAProcess:
    """An EngineCore with what its class with a busy loop has as well."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject.engine, name, None) or getattr(self._subject.process, name)


def _lever(make: type[CoreLever]) -> Callable[[Subject], Support]:
    def probe(subject: Subject) -> Support:
        view, guard = SchedulerView(subject.scheduler), Guard()
        accounts, taps = KVAccounts(view, guard), Taps(subject.scheduler, guard)
        accounts.main.support = subject.accounts.support  # that of a pool that is watched
        settings, engine = Settings.from_environment({}), _InAProcess(subject)
        try:
            make(LeverContext(engine, subject.scheduler, view, taps, accounts, {}, guard, settings, lambda: 0.0))
        except RefusedError as refusal:
            reason = str(refusal).replace(_InAProcess.__name__, subject.process.__name__)
            return Support(ok=False, reason=reason)
        return Support(ok=True)

    return probe


_NO_SUCH_HOLDER = "nothing: no such holder exists there"
_NO_LEVER = "that lever"

CAPABILITIES = (
    Capability("exact accounting", "orphaned and over-freed blocks", lambda s: s.accounts.support),
    Capability("exact accounting, sliding windows", "the same, for hybrid models", lambda s: s.hybrid.support),
    Capability("bytes and tokens per block", "sizes in bytes", _sizes),
    Capability(
        "reports from the busy loop", "the whole engine", _has(_process, "run_busy_loop", "_process_engine_step")
    ),
    Capability("orders, idle engines' reports", "both", _has(_process, "_handle_client_request")),
    Capability("engine in its caller's process", "such engines", _has(lambda s: s.engine, "step_fn")),
    Capability("running and waiting requests", "both counts", _has(_scheduler, "get_request_counts")),
    Capability(
        "requests put aside in one step",
        "nothing: they wait among the others",
        _has(_scheduler, "skipped_waiting"),
    ),
    Capability(
        "waiting requests that hold blocks",
        "telling them from other waiting ones",
        _has(_scheduler, "kv_holding_waiting"),
    ),
    Capability("frees that wait for a step in flight", _NO_SUCH_HOLDER, _has(_scheduler, "deferred_frees")),
    Capability("pending copies on write", _NO_SUCH_HOLDER, _has(lambda s: s.table, "_pending_cow_copies")),
    Capability(
        "blocks unpinned but still readable",
        "nothing: references are given back by free_blocks alone there",
        _has(_pool, "unpin_blocks"),
    ),
    Capability("hashes that move between blocks", "live compaction", _has(_pool, "move_block_hashes")),
    Capability("preemptions", "when each happened; their number is known", _has(_scheduler, "_preempt_request")),
    Capability(
        "a request's session",
        "sessions by vLLM's own X-Session-ID",
        _takes(lambda s: s.request, "__init__", "session_id"),
    ),
    Capability(
        "a request's cache salt", "tenants by cache_salt", _takes(lambda s: s.request, "__init__", "cache_salt")
    ),
    Capability("a request's extra arguments", "tenants by header", _has(lambda s: s.sampling, "extra_args")),
    Capability(
        "encoder cache entries",
        "its orphans",
        _has(lambda s: s.scheduler.encoder_cache_manager, "cached", "freeable", "num_free_slots", "cache_size"),
    ),
    Capability("lever: admission watermark", _NO_LEVER, _has(_manager, "watermark_blocks")),
    Capability("lever: cap on active requests", _NO_LEVER, _has(_scheduler, "max_num_active_reqs")),
    Capability("lever: evict cached blocks", _NO_LEVER, _has(_manager, "evict_blocks")),
    Capability("lever: preempt one request", _NO_LEVER, _has(_scheduler, "_preempt_request")),
    Capability(
        "lever: preempt all by a cache reset",
        _NO_LEVER,
        _takes(_scheduler, "reset_prefix_cache", "reset_running_requests"),
    ),
    Capability("lever: abort, client told", _NO_LEVER, _has(_process, "_send_abort_outputs")),
    Capability("lever: pause", _NO_LEVER, _has(_scheduler, "set_pause_state")),
    Capability("lever: release the cache's memory", _NO_LEVER, _has(_process, "release_kv_cache_memory")),
    # Those that need what no engine here has, a device, a connector or sleep mode, are the same on all versions.
    *(
        Capability(f"kvtide lever: {lever.NAME}", _NO_LEVER, _lever(lever))
        for lever in LEVERS
        if lever.NAME not in ("trim", "reclaim_delayed", "sleep")
    ),
)
