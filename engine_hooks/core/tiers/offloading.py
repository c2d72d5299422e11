"""OffloadingConnector: chunks in host memory, and tiers behind it (files, object stores, peers)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from engine_hooks.core.tiers.jobs import Tier

CHUNKS = ("_num_chunks", "_num_allocated_chunks", "_free_list", "_num_evictable_cache_chunks")


class OffloadingTiers:
    """Reads the scheduler's side of one such connector. Its chunks are counted as the blocks that each consists of."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._manager = scheduler.manager
        self._blocks = int(getattr(getattr(scheduler, "config", None), "blocks_per_chunk", 1))

    @classmethod
    def of(cls, connector: Any) -> OffloadingTiers | None:
        """Return the tiers of ``connector``, or None when it is of another kind."""
        scheduler = getattr(connector, "connector_scheduler", None)
        return cls(scheduler) if all(hasattr(scheduler, name) for name in ("manager", "_jobs")) else None

    def tiers(self) -> list[Tier]:
        """Return host memory first, then what lies behind it in vLLM's order."""
        behind = list(getattr(self._manager, "secondary_tiers", ()))
        return [self._host(), *(self._secondary(index, tier) for index, tier in enumerate(behind))]

    def _host(self) -> Tier:
        manager = getattr(self._manager, "primary_tier", self._manager)
        capacity: int | None = None
        used: int | None = None
        cached: int | None = None
        if all(hasattr(manager, name) for name in CHUNKS):
            taken = manager._num_allocated_chunks - len(manager._free_list)
            capacity = manager._num_chunks * self._blocks
            cached = manager._num_evictable_cache_chunks * self._blocks
            used = taken * self._blocks - cached
        jobs = self._scheduler._jobs
        return Tier(
            name="host",
            capacity=capacity,
            used=used,
            cached=cached,
            jobs=((job, None) for job in jobs),
            pending=len(jobs),
        )

    def _secondary(self, index: int, tier: Any) -> Tier:
        """What such a tier keeps lies in files or elsewhere; its transfers are known, and when they began."""
        jobs = [job.transfer_job for job in self._manager._jobs.values() if job.tier_idx == index]
        return Tier(
            name=str(getattr(tier, "tier_type", index)),
            capacity=None,
            used=None,
            cached=None,
            jobs=_dated(jobs),
            pending=len(jobs),
        )


def _dated(jobs: list[Any]) -> Iterator[tuple[Hashable, float | None]]:
    for job in jobs:
        yield job.job_id, getattr(job, "submit_time", None)
