"""From torch's list of segments to rows, one per device: a pure function of what a snapshot has.

Private pools are told apart from the pools that all allocations share: what is free in one is of no use to the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_hooks.allocator import (
    BAND_BOUNDS,
    MAX_DEVICES,
    MAX_PRIVATE_POOLS,
    OTHER_POOLS,
    PoolRow,
    PrivatePoolRow,
    SegmentsRow,
)

INACTIVE = "inactive"
_SHARED = (0, 0)
_KINDS = ("small", "large")


@dataclass(slots=True)
class _Sums:
    segments: int = 0
    reserved: int = 0
    active: int = 0
    free: int = 0
    largest: int = 0

    def add(self, reserved: int, active: int) -> None:
        self.segments += 1
        self.reserved += reserved
        self.active += active


@dataclass(slots=True)
class _Device:
    all: _Sums = field(default_factory=_Sums)
    blocks: int = 0
    whole_free: int = 0
    band_blocks: list[int] = field(default_factory=lambda: [0] * (len(BAND_BOUNDS) + 1))
    band_bytes: list[int] = field(default_factory=lambda: [0] * (len(BAND_BOUNDS) + 1))
    streams: set[int] = field(default_factory=set)
    expandable_segments: int = 0
    expandable_bytes: int = 0
    pools: dict[str, _Sums] = field(default_factory=lambda: {kind: _Sums() for kind in _KINDS})
    private: dict[tuple[int, int], _Sums] = field(default_factory=lambda: defaultdict(_Sums))


def pool_of(segment: Mapping[str, Any]) -> tuple[int, int]:
    """Return the id of the pool that a segment belongs to; torch that tells none has only the shared ones."""
    first, second = segment.get("segment_pool_id", _SHARED)
    return int(first), int(second)


def rows_of(segments: Iterable[Mapping[str, Any]], tags: Mapping[tuple[int, int], str]) -> tuple[SegmentsRow, ...]:
    """Return a row per device, ``MAX_DEVICES`` at most. ``tags``: what the sleep mode calls its pools, by their id."""
    devices: dict[int, _Device] = defaultdict(_Device)
    for segment in segments:
        _add(devices[int(segment.get("device", 0))], segment)
    return tuple(_row(number, devices[number], tags) for number in sorted(devices)[:MAX_DEVICES])


def _add(device: _Device, segment: Mapping[str, Any]) -> None:
    blocks = segment["blocks"]
    total = int(segment["total_size"])
    active = int(segment.get("active_size", segment.get("allocated_size", 0)))
    device.all.add(total, active)
    device.blocks += len(blocks)
    device.streams.add(int(segment.get("stream", 0)))
    if segment.get("is_expandable"):
        device.expandable_segments += 1
        device.expandable_bytes += total
    pool = pool_of(segment)
    if pool != _SHARED:
        device.private[pool].add(total, active)
        return
    sums = device.pools[_KINDS[segment.get("segment_type") != "small"]]
    sums.add(total, active)
    free = 0
    for block in blocks:
        if block["state"] == INACTIVE:
            size = block["size"]
            free += size
            band = bisect_left(BAND_BOUNDS, size)
            device.band_blocks[band] += 1
            device.band_bytes[band] += size
            if size > sums.largest:
                sums.largest = size
    sums.free += free
    if free == total:
        device.whole_free += total


def _row(number: int, device: _Device, tags: Mapping[tuple[int, int], str]) -> SegmentsRow:
    pools = device.pools
    return SegmentsRow(
        device=number,
        segments=device.all.segments,
        blocks=device.blocks,
        reserved_bytes=device.all.reserved,
        active_bytes=device.all.active,
        free_bytes=sum(sums.free for sums in pools.values()),
        largest_free_bytes=max(sums.largest for sums in pools.values()),
        whole_free_bytes=device.whole_free,
        band_blocks=tuple(device.band_blocks),
        band_bytes=tuple(device.band_bytes),
        streams=len(device.streams),
        expandable_segments=device.expandable_segments,
        expandable_bytes=device.expandable_bytes,
        pools=tuple(
            PoolRow(
                kind=kind,
                segments=sums.segments,
                reserved_bytes=sums.reserved,
                active_bytes=sums.active,
                free_bytes=sums.free,
                largest_free_bytes=sums.largest,
            )
            for kind, sums in pools.items()
        ),
        private=_private(device.private, tags),
    )


def _private(pools: Mapping[tuple[int, int], _Sums], tags: Mapping[tuple[int, int], str]) -> tuple[PrivatePoolRow, ...]:
    """The largest private pools, and the others in one row."""
    by_size = sorted(pools.items(), key=lambda item: (-item[1].reserved, item[0]))
    rows = [
        PrivatePoolRow(
            pool=f"{pool[0]}.{pool[1]}",
            segments=sums.segments,
            reserved_bytes=sums.reserved,
            active_bytes=sums.active,
            tags=tags.get(pool, ""),
        )
        for pool, sums in by_size[:MAX_PRIVATE_POOLS]
    ]
    rest = [sums for _, sums in by_size[MAX_PRIVATE_POOLS:]]
    if rest:
        rows.append(
            PrivatePoolRow(
                pool=OTHER_POOLS,
                segments=sum(sums.segments for sums in rest),
                reserved_bytes=sum(sums.reserved for sums in rest),
                active_bytes=sum(sums.active for sums in rest),
            )
        )
    return tuple(rows)
