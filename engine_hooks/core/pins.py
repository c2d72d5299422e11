"""References that KV connectors take on blocks by themselves, read from their own books.

Most connectors take none: they have the scheduler keep a finished request's table (a delayed free). Those that are
handed the pool may. The ones below are known by the attributes that hold their books; any other that asked for the pool
is an unknown pinner, and what it holds can't be told from a leak before it has aged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

Block = Any  # vllm.v1.core.kv_cache_utils.KVCacheBlock
Pool = Any  # vllm.v1.core.block_pool.BlockPool

MAX_NESTED = 16


class Same:
    """A key for an object that has no name of its own: it keeps the object, so that the key is never another's."""

    __slots__ = ("_of",)

    def __init__(self, of: object) -> None:
        self._of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._of is self._of

    def __hash__(self) -> int:
        return id(self._of)


class PinSource(Protocol):
    """One connector's books. ``holder`` names it for people."""

    holder: str

    def pinned(self, pool: Pool) -> Iterator[tuple[Hashable, Sequence[Block]]]:
        """Yield each job's key, the same while it lasts, and the blocks of ``pool`` on which it holds a reference."""
        ...

    def borrowed(self, pool: Pool) -> Iterator[Sequence[Block]]:
        """Yield lists of blocks that stand in a block table without a reference of that table's own."""
        ...


class SimpleOffloadPins:
    """SimpleCPUOffloadConnector: transfers between the GPU pool and its CPU pool hold both ends."""

    _REQUIRED = ("_reqs_to_load", "_store_event_to_blocks", "cpu_block_pool", "_gpu_block_pool")

    def __init__(self, holder: str, manager: Any) -> None:
        self.holder = holder
        self._manager = manager

    @classmethod
    def of(cls, connector: Any) -> SimpleOffloadPins | None:
        """Return the books of ``connector``, or None when it is of another kind."""
        manager = getattr(connector, "scheduler_manager", None)
        if all(hasattr(manager, name) for name in cls._REQUIRED):
            return cls(type(connector).__name__, manager)
        return None

    def _transfers(self) -> Iterator[Any]:
        manager = self._manager
        for name in ("_reqs_to_load", "_abandoned_reqs_to_load"):
            for state in list(getattr(manager, name, {}).values()):
                if state.transfer_meta is not None:
                    yield state.transfer_meta
        for name in ("_store_event_to_blocks", "_abandoned_store_event_to_blocks"):
            yield from list(getattr(manager, name, {}).values())
        yield from list(getattr(manager, "_pending_finished_stores", ()))

    def pinned(self, pool: Pool) -> Iterator[tuple[Hashable, Sequence[Block]]]:
        """See :class:`PinSource`."""
        manager = self._manager
        blocks = pool.blocks
        if pool is manager._gpu_block_pool:
            for transfer in self._transfers():
                yield Same(transfer), [blocks[i] for i in transfer.gpu_block_ids]
        elif pool is manager.cpu_block_pool:
            for transfer in self._transfers():
                yield Same(transfer), [blocks[i] for i in transfer.cpu_block_ids]
            # A hit that the scheduler has not acted on yet keeps its CPU blocks.
            for request, (groups, *_) in list(getattr(manager, "_pending_cpu_hits", {}).items()):
                yield request, [block for group in groups for block in group if not block.is_null]

    def borrowed(self, pool: Pool) -> Iterator[Sequence[Block]]:
        """See :class:`PinSource`: none."""
        yield from ()

    def pools(self) -> tuple[tuple[str, Pool], ...]:
        """The pools that only this connector uses, with a name."""
        return (("cpu_offload", self._manager.cpu_block_pool),)


class MooncakeStorePins:
    """MooncakeStoreConnector: a save job pins the blocks that it reads, until every rank has reported."""

    def __init__(self, holder: str, scheduler: Any) -> None:
        self.holder = holder
        self._scheduler = scheduler

    @classmethod
    def of(cls, connector: Any) -> MooncakeStorePins | None:
        """Return the books of ``connector``, or None when it is of another kind."""
        scheduler = getattr(connector, "connector_scheduler", None)
        return cls(type(connector).__name__, scheduler) if hasattr(scheduler, "_pinned_saves") else None

    def pinned(self, pool: Pool) -> Iterator[tuple[Hashable, Sequence[Block]]]:
        """See :class:`PinSource`."""
        gpu: Any = getattr(self._scheduler, "_gpu_block_pool", pool)
        if pool is gpu:
            for job, (block_ids, _remaining) in list(self._scheduler._pinned_saves.items()):
                yield job, [pool.blocks[i] for i in block_ids]

    def borrowed(self, pool: Pool) -> Iterator[Sequence[Block]]:
        """See :class:`PinSource`: none."""
        yield from ()


class HiSparsePins:
    """HiSparse: a spill holds its resident pages and their host page, until every worker has written it.

    A request's table of resident pages is only ever appended to; which page it reads instead stands beside it, in the
    manager's ``residency_changes``. There a page is a block that the request holds (a copy that another left behind),
    or the null block: then the entry of the table is no longer the request's. A clean page stays in its table, and its
    reference has been let go.
    """

    _REQUIRED = ("pending_spills", "request_states", "resident_managers", "host_manager", "_retained_copies")

    def __init__(self, holder: str, coordinator: Any) -> None:
        self.holder = holder
        self._coordinator = coordinator

    @classmethod
    def of(cls, connector: Any) -> HiSparsePins | None:
        """Return the books of ``connector``, or None when it is of another kind."""
        coordinator = getattr(getattr(connector, "connector_scheduler", None), "coordinator", None)
        managers = getattr(coordinator, "resident_managers", ())
        if all(hasattr(coordinator, name) for name in cls._REQUIRED) and all(
            hasattr(manager, "residency_changes") for manager in managers
        ):
            return cls(type(connector).__name__, coordinator)
        return None

    def pinned(self, pool: Pool) -> Iterator[tuple[Hashable, Sequence[Block]]]:
        """See :class:`PinSource`."""
        coordinator = self._coordinator
        host = getattr(coordinator.host_manager, "block_pool", None)
        states = coordinator.request_states.values()
        publications = {Same(state): state.publication for state in states if state.publication is not None}
        for spill in list(coordinator.pending_spills.values()):
            if pool is host:
                yield spill.transfer_id, (spill.host_block,)
            if not spill.enqueue_applied:
                for manager, block in zip(coordinator.resident_managers, spill.resident_blocks, strict=False):
                    if manager.block_pool is pool:
                        yield spill.transfer_id, (block,)
            if spill.request_state.publication is not None:
                publications[Same(spill.request_state)] = spill.request_state.publication
        if pool is host:
            for key, publication in publications.items():
                if publication.detached_blocks:
                    yield key, publication.detached_blocks
            yield from list(coordinator._retained_copies.items())
        for manager in self._resident_in(pool):
            for changes in list(manager.residency_changes.values()):
                adopted = [block for block in changes.values() if not block.is_null]
                if adopted:
                    yield Same(changes), adopted

    def borrowed(self, pool: Pool) -> Iterator[Sequence[Block]]:
        """See :class:`PinSource`: pages that the pool may reuse although their request still reads them, or has lost.

        A reused page's entry stays in the table, where by now it is the block of somebody else.
        """
        for manager in self._resident_in(pool):
            for request_id, state in list(self._coordinator.request_states.items()):
                pages = [manager.get_resident_page(request_id, page) for page in list(state.unpinned_pages)]
                yield [block for block in pages if block is not None]
            for request_id, changes in list(manager.residency_changes.items()):
                table = manager.req_to_blocks.get(request_id) or ()
                yield [table[page] for page in list(changes) if page < len(table) and not table[page].is_null]

    def _resident_in(self, pool: Pool) -> list[Any]:
        return [manager for manager in self._coordinator.resident_managers if manager.block_pool is pool]


_KNOWN = (SimpleOffloadPins, MooncakeStorePins, HiSparsePins)
_HANDED_THE_POOL = ("bind_gpu_block_pool", "bind_kv_cache_manager")


def _nested(connector: Any) -> Iterator[Any]:
    """The connectors that really work: MultiConnector only forwards to those in its ``_connectors``."""
    inner = getattr(connector, "_connectors", None)
    if isinstance(inner, list | tuple):
        for one in inner[:MAX_NESTED]:
            yield from _nested(one)
    elif connector is not None:
        yield connector


def _asks_for_pool(connector: Any) -> bool:
    """Whether its class replaces the base's do-nothing method by which a connector is handed the block pool."""
    for base in type(connector).__mro__:
        if base.__name__ == "KVConnectorBase_V1":
            return False
        if any(name in vars(base) for name in _HANDED_THE_POOL):
            return True
    return True  # not derived from vLLM's base: it may be anything


def find_pins(connector: Any) -> tuple[tuple[PinSource, ...], tuple[str, ...]]:
    """Return the books of the known connectors in ``connector``, and the class names of the unknown pinners."""
    known: list[PinSource] = []
    unknown: list[str] = []
    for one in _nested(connector):
        source = next((found for kind in _KNOWN if (found := kind.of(one)) is not None), None)
        if source is not None:
            known.append(source)
        elif _asks_for_pool(one):
            unknown.append(type(one).__name__)
    return tuple(known), tuple(unknown)
