"""Delayed frees: blocks of finished requests that are kept for a connector, by peer, against the connector's lease.

Also the frees that wait for a step in flight: they come back by themselves when steps go on, and never when they don't.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_hooks.core.observers import Context
from engine_hooks.detail import MAX_ROW_TENANTS, MAX_ROWS, OTHER, DelayedRow
from engine_hooks.names import NO_TENANT, printable

MAX_TRACKED = 4096  # requests
SEND, RECEIVE, LOADING, DEFERRED = "send", "receive", "loading", "deferred"
# What a request's transfer parameters call the other end, in the connectors of vLLM.
_PEER_KEYS = ("remote_engine_id", "remote_host", "remote_address", "remote_bootstrap_addr", "remote_request_id")


@dataclass(frozen=True, slots=True)
class _Kept:
    peer: str
    direction: str
    since: float
    tenant: str


@dataclass(slots=True)
class _Sum:
    requests: int = 0
    blocks: int = 0
    oldest: float = 0.0
    expired: int = 0
    tenants: Counter[str] = field(default_factory=Counter)

    def add(self, blocks: int, age: float, lease: float | None, tenant: str) -> None:
        self.requests += 1
        self.blocks += blocks
        self.oldest = max(self.oldest, age)
        if lease is not None and age > lease:
            self.expired += blocks
        self.tenants[tenant if tenant in self.tenants or len(self.tenants) < MAX_ROW_TENANTS - 1 else OTHER] += blocks

    def row(self, peer: str, direction: str, lease: float | None) -> DelayedRow:
        return DelayedRow(
            peer=peer,
            direction=direction,
            requests=self.requests,
            blocks=self.blocks,
            oldest_seconds=max(0.0, self.oldest),
            lease_seconds=lease,
            expired=self.expired,
            tenants=dict(self.tenants),
        )


def lease_of(connector: Any) -> float | None:
    """Return after how many seconds ``connector`` gives up on a peer by itself; None where it says nothing.

    NIXL: ``kv_lease_duration`` (its scheduler's ``_kv_lease_duration``), or the abort timeout that was there before.
    """
    for inner in (connector, *(getattr(connector, "_connectors", None) or ())):
        for holder in (getattr(inner, "connector_scheduler", None), inner):
            value = getattr(holder, "_kv_lease_duration", None)
            if isinstance(value, int | float) and value > 0:
                return float(value)
        if "Nixl" in type(inner).__name__ or "Mooncake" in type(inner).__name__:
            return _abort_timeout("MOONCAKE" if "Mooncake" in type(inner).__name__ else "NIXL")
    return None


def _abort_timeout(kind: str) -> float | None:
    from vllm import envs

    value = getattr(envs, f"VLLM_{kind}_ABORT_REQUEST_TIMEOUT", None)
    return float(value) if isinstance(value, int | float) and value > 0 else None


def peer_of(request: Any) -> str:
    """Return whom a request's KV comes from or goes to, as far as its transfer parameters say."""
    params = getattr(request, "kv_transfer_params", None)
    if isinstance(params, dict):
        for key in _PEER_KEYS:
            if params.get(key):
                return printable(str(params[key]))
    return "unknown"


def transfer_id(scheduler: Any) -> str:
    """Return what other engines call this one in their requests' transfer parameters; empty without a connector."""
    config = getattr(getattr(scheduler, "vllm_config", None), "kv_transfer_config", None)
    return printable(str(getattr(config, "engine_id", None) or "")) if config is not None else ""


class DelayedFrees:
    """Fills ``Detail.delayed``."""

    HOOK = "delayed"
    SECTION = "delayed"

    def __init__(self, context: Context) -> None:
        self._scheduler = context.scheduler
        self._groups = context.view.groups
        self._clock = context.clock
        self._marks_of = context.marks_of
        self._connector = getattr(context.scheduler, "connector", None)
        self._lease = lease_of(self._connector)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._loading: dict[str, float] = {}
        self._receiving: set[str] = set()
        # Deferred entries by id: the entry itself, so that its id is no other's, since when it waits, and whose it is.
        self._deferred: dict[int, tuple[Any, float, str]] = {}
        context.taps.finishing.append(self._finishing)
        context.taps.finished.append(self._finished)
        context.taps.kept.append(self._keep)
        context.taps.put_off.append(self._put_off)
        context.taps.books_of_kept.append(self._kept)

    def _finishing(self, ids: Any = None, _status: Any = None) -> None:
        """Note which of the requests that are ended from outside still load KV from elsewhere."""
        requests = self._scheduler.requests
        named = requests if ids is None else (ids,) if isinstance(ids, str) else ids
        if not isinstance(named, list | tuple | set | dict):
            return  # a one-pass iterator: looking would use it up
        for request_id in named:
            if _loads(requests.get(request_id)):
                self._receiving.add(request_id)

    def _finished(self, *_: Any) -> None:
        self._receiving.clear()

    def _keep(self, request: Any) -> None:
        request_id = request.request_id
        direction = RECEIVE if request_id in self._receiving else SEND
        self._kept[request_id] = _Kept(peer_of(request), direction, self._clock(), self._marks_of(request).tenant)
        if len(self._kept) > MAX_TRACKED:
            self._kept.popitem(last=False)

    def _put_off(self, request: Any) -> None:
        """Note whose blocks were just added to the deferred frees: a step adds the ends of copies too."""
        queue = self._scheduler.deferred_frees
        if len(self._deferred) >= MAX_TRACKED:
            self._forget_drained(queue)
        if len(self._deferred) < MAX_TRACKED:
            self._deferred[id(queue[-1])] = (queue[-1], self._clock(), self._marks_of(request).tenant)

    def kept(self) -> Mapping[str, _Kept]:
        """Return the ended requests whose blocks are kept for a connector: since when, and in which direction."""
        return self._kept

    def section(self, now: float) -> tuple[DelayedRow, ...]:
        """Return the kept blocks by peer and direction, and the deferred ones."""
        sums: dict[tuple[str, str], _Sum] = {}
        for request_id, kept in self._kept.items():
            key = (kept.peer, kept.direction)
            if key not in sums and len(sums) >= MAX_ROWS - 4:
                key = (OTHER, kept.direction)
            sums.setdefault(key, _Sum()).add(self._blocks(request_id), now - kept.since, self._lease, kept.tenant)
        self._add_loading(sums, now)
        rows = [
            total.row(peer, direction, None if direction == LOADING else self._lease)
            for (peer, direction), total in sums.items()
        ]
        deferred = self._sum_deferred(now)
        return (*rows, deferred.row("", DEFERRED, None)) if deferred else tuple(rows)

    def _blocks(self, request_id: str) -> int:
        return sum(len(manager.req_to_blocks.get(request_id) or ()) for manager in self._groups)

    def _add_loading(self, sums: dict[tuple[str, str], _Sum], now: float) -> None:
        """Add the requests that wait for KV from elsewhere: only an engine with a connector has any."""
        if self._connector is None:
            return
        seen: dict[str, float] = {}
        for request_id, request in self._scheduler.requests.items():
            if _loads(request) and len(seen) < MAX_TRACKED:
                seen[request_id] = self._loading.get(request_id, now)
                key = (peer_of(request), LOADING)
                if key not in sums and len(sums) >= MAX_ROWS - 4:
                    key = (OTHER, LOADING)
                tenant = self._marks_of(request).tenant
                sums.setdefault(key, _Sum()).add(self._blocks(request_id), now - seen[request_id], None, tenant)
        self._loading = seen

    def _sum_deferred(self, now: float) -> _Sum | None:
        queue = list(getattr(self._scheduler, "deferred_frees", None) or ())
        self._forget_drained(queue)
        total = _Sum()
        for entry in queue:
            _, since, tenant = self._deferred.setdefault(id(entry), (entry, now, NO_TENANT))
            total.add(len(entry[1]), now - since, None, tenant)
        return total if queue else None

    def _forget_drained(self, queue: Iterable[Any]) -> None:
        waiting = set(map(id, queue))
        self._deferred = {key: known for key, known in self._deferred.items() if key in waiting}


def _loads(request: Any) -> bool:
    return getattr(getattr(request, "status", None), "name", "") == "WAITING_FOR_REMOTE_KVS"
