"""SimpleCPUOffloadConnector: a block pool of its own in host memory, or on disk."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from engine_hooks.core.pins import Same
from engine_hooks.core.tiers.jobs import Tier

LOADS = ("_reqs_to_load", "_abandoned_reqs_to_load")
STORES = ("_store_event_to_blocks", "_abandoned_store_event_to_blocks")
ABANDONED = ("_abandoned_reqs_to_load", "_abandoned_store_event_to_blocks")
QUEUED = "_pending_finished_stores"


class SimpleTiers:
    """Reads the scheduler's side of one such connector. A store is a job per step, a load one per request."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        medium = str(getattr(manager, "kv_event_medium", ""))
        self._name = "disk" if medium == "STORAGE" else "host"

    @classmethod
    def of(cls, connector: Any) -> SimpleTiers | None:
        """Return the tiers of ``connector``, or None when it is of another kind or offloads nothing."""
        manager = getattr(connector, "scheduler_manager", None)
        needed = ("cpu_block_pool", LOADS[0], STORES[0])
        return cls(manager) if all(hasattr(manager, name) for name in needed) else None

    def tiers(self) -> list[Tier]:
        """Return the one tier."""
        pool = self._manager.cpu_block_pool
        capacity = int(pool.num_gpu_blocks) - 1  # without the null block
        return [
            Tier(
                name=self._name,
                capacity=capacity,
                used=capacity - int(pool.get_num_free_blocks()),
                cached=None,  # cached and empty blocks share the pool's free queue
                jobs=self._jobs(),
                pending=sum(len(self._book(name)) for name in (*LOADS, *STORES, QUEUED)),
                abandoned=sum(len(self._book(name)) for name in ABANDONED),
            )
        ]

    def _book(self, name: str) -> Any:
        return getattr(self._manager, name, ())

    def _jobs(self) -> Iterator[tuple[Hashable, float | None]]:
        # An abandoned job keeps its key, so that its age goes on.
        for kind, names in (("load", LOADS), ("store", STORES)):
            for name in reversed(names):
                for key in self._book(name):
                    yield (kind, key), None
        for transfer in self._book(QUEUED):
            yield Same(transfer), None
