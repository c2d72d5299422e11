"""What processes tell of torch's allocator, with values that a test can know by heart."""

from __future__ import annotations

from typing import Any

from agent.oom.judge import judge
from agent.oom.log import Failure
from agent.state import AllocatorState
from engine_hooks.allocator import (
    BAND_BOUNDS,
    MIB,
    AllocatorRow,
    DeviceRow,
    MemoryEvent,
    PoolRow,
    PrivatePoolRow,
    SegmentsRow,
    TagRow,
    WalkRow,
)


def make_segments(**changes: Any) -> SegmentsRow:
    """1000 MiB: 700 in use, 240 free in eleven blocks of 8 to 100 MiB, a CUDA graph's pool and sleep mode's."""
    blocks, sizes = [0] * (len(BAND_BOUNDS) + 1), [0] * (len(BAND_BOUNDS) + 1)
    for size, number in ((8, 5), (20, 5), (100, 1)):
        band = next(i for i, bound in enumerate(BAND_BOUNDS) if size * MIB <= bound)
        blocks[band], sizes[band] = number, number * size * MIB
    large = PoolRow(
        kind="large",
        segments=8,
        reserved_bytes=900 * MIB,
        active_bytes=660 * MIB,
        free_bytes=240 * MIB,
        largest_free_bytes=100 * MIB,
    )
    small = PoolRow(kind="small", segments=0, reserved_bytes=0, active_bytes=0, free_bytes=0, largest_free_bytes=0)
    values: dict[str, Any] = {
        "device": 0,
        "segments": 12,
        "blocks": 50,
        "reserved_bytes": 1000 * MIB,
        "active_bytes": 700 * MIB,
        "free_bytes": 240 * MIB,
        "largest_free_bytes": 100 * MIB,
        "whole_free_bytes": 20 * MIB,
        "band_blocks": tuple(blocks),
        "band_bytes": tuple(sizes),
        "streams": 2,
        "expandable_segments": 0,
        "expandable_bytes": 0,
        "pools": (small, large),
        "private": (
            PrivatePoolRow(pool="0.1", segments=3, reserved_bytes=60 * MIB, active_bytes=30 * MIB),
            PrivatePoolRow(pool="1.0", segments=1, reserved_bytes=40 * MIB, active_bytes=10 * MIB, tags="weights"),
        ),
    }
    return SegmentsRow(**values | changes)


def make_walk(**changes: Any) -> WalkRow:
    """A walk of 4 ms over :func:`make_segments`."""
    values: dict[str, Any] = {"monotonic": 50.0, "seconds": 0.004, "period_seconds": 5.0, "devices": (make_segments(),)}
    return WalkRow(**values | changes)


def make_device(**changes: Any) -> DeviceRow:
    """1000 MiB reserved, 700 active, 690 allocated."""
    values: dict[str, Any] = {
        "device": 0,
        "uuid": "GPU-1",
        "allocated_bytes": 690 * MIB,
        "allocated_peak_bytes": 800 * MIB,
        "reserved_bytes": 1000 * MIB,
        "reserved_peak_bytes": 1100 * MIB,
        "active_bytes": 700 * MIB,
        "requested_bytes": 680 * MIB,
        "inactive_split_bytes": 200 * MIB,
        "retries_total": 3,
        "ooms_total": 1,
        "device_allocs_total": 40,
        "device_frees_total": 28,
    }
    return DeviceRow(**values | changes)


def make_allocator(**changes: Any) -> AllocatorRow:
    """One device with everything that there is to tell."""
    weights = TagRow(tag="weights", device=0, allocations=1, bytes=40 * MIB, mapped_bytes=0, backed_up_bytes=40 * MIB)
    values: dict[str, Any] = {
        "backend": "native",
        "expandable_segments": False,
        "fields": 18,
        "devices": (make_device(),),
        "walk": make_walk(),
        "tags": (weights,),
    }
    return AllocatorRow(**values | changes)


def make_allocator_state(**changes: Any) -> AllocatorState:
    """The same as the agent knows it, a second old."""
    values: dict[str, Any] = {"row": make_allocator(), "walk_age_seconds": 1.0, "history": None}
    return AllocatorState(**values | changes)


def make_event(**changes: Any) -> MemoryEvent:
    """A failed allocation of 150 MiB in fragmented memory."""
    values: dict[str, Any] = {
        "sequence": 1,
        "kind": "oom",
        "at": 1_700_000_960.0,
        "where": "execute_model",
        "message": "OutOfMemoryError: CUDA out of memory. Tried to allocate 150.00 MiB.",
        "device": 0,
        "requested_bytes": 150 * MIB,
        "device_free_bytes": 10 * MIB,
        "free_bytes": 240 * MIB,
        "largest_free_bytes": 100 * MIB,
    }
    return MemoryEvent(**values | changes)


def make_failure(**changes: Any) -> Failure:
    """:func:`make_event` in rank 1 of engine m."""
    event = changes.pop("event", make_event())
    values: dict[str, Any] = {
        "engine": "m",
        "process": "",
        "role": "worker",
        "rank": 1,
        "pid": 4322,
        "event": event,
        "judgement": judge(event.message, event),
    }
    return Failure(**values | changes)
