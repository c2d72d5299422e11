"""Sums over segments: what is reserved, allocated, waiting, free; sizes of free blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.snapshot.model import ACTIVE, INACTIVE, PoolId, Segment
from agent.snapshot.report import Band, PoolRow, Usage

_KIB, _MIB = 1 << 10, 1 << 20
# 16..32 MiB stands by itself: free blocks of that size are where write-ups saw long-running servers lose memory.
EDGES = (0, 64 * _KIB, _MIB, 2 * _MIB, 4 * _MIB, 8 * _MIB, 16 * _MIB, 32 * _MIB, 64 * _MIB, 256 * _MIB, 1 << 30)
BAND_LOW, BAND_HIGH = 16 * _MIB, 32 * _MIB


def usage(segments: Iterable[Segment]) -> Usage:
    """Return the sums of ``segments``. Fragmentation as in torch's own write-ups: 1 - largest free / total free."""
    count = reserved = allocated = inactive = requested = largest = 0
    for segment in segments:
        count += 1
        reserved += segment.size
        for block in segment.blocks:
            if block.state == ACTIVE:
                allocated += block.size
                requested += block.requested
            elif block.state == INACTIVE:
                inactive += block.size
                if block.size > largest:
                    largest = block.size
    contiguity = largest / inactive if inactive else None
    return Usage(
        segments=count,
        reserved=reserved,
        allocated=allocated,
        awaiting=reserved - allocated - inactive,
        inactive=inactive,
        requested=requested,
        largest_free=largest,
        fragmentation=None if contiguity is None else 1 - contiguity,
        contiguity=contiguity,
        overcommit=reserved / allocated if allocated else None,
    )


def pools(segments: Iterable[Segment]) -> tuple[PoolRow, ...]:
    """Return the sums by pool, stream, kind and whether it is expandable; the largest first."""
    groups: dict[tuple[PoolId, int, bool, bool | None], list[Segment]] = {}
    for segment in segments:
        groups.setdefault((segment.pool, segment.stream, segment.small, segment.expandable), []).append(segment)
    rows = [
        PoolRow(
            pool=pool, stream=stream, kind="small" if small else "large", expandable=expandable, usage=usage(members)
        )
        for (pool, stream, small, expandable), members in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.usage.reserved))


def bands(segments: Iterable[Segment], edges: Sequence[int] = EDGES) -> tuple[Band, ...]:
    """Return how many free blocks there are of which size, and their bytes; every band, empty ones too."""
    counts, sizes = [0] * len(edges), [0] * len(edges)
    for segment in segments:
        for block in segment.blocks:
            if block.state == INACTIVE:
                n = len(edges) - 1
                while block.size < edges[n]:
                    n -= 1
                counts[n] += 1
                sizes[n] += block.size
    highs = (*edges[1:], None)
    return tuple(
        Band(low=low, high=high, count=count, size=size)
        for low, high, count, size in zip(edges, highs, counts, sizes, strict=True)
    )
