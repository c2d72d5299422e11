"""Free space that can't be given back: who pins it, and what expandable segments would change."""

from __future__ import annotations

from collections.abc import Iterable

from agent.snapshot.model import DEFAULT_POOL, INACTIVE, Segment, Stacks
from agent.snapshot.report import Holder, WhatIf
from agent.snapshot.sites import site_of

# What torch maps at a time in an expandable segment, and the least that the CUDA driver maps.
SMALL_PAGE, LARGE_PAGE, DRIVER_PAGE = 2 << 20, 20 << 20, 2 << 20


def holders(segments: Iterable[Segment], stacks: Stacks) -> list[Holder]:
    """Return who pins the gaps of segments that are partly in use; the shares add up to all of these gaps."""
    share: dict[int, int] = {}
    alone: dict[int, int] = {}
    count: dict[int, int] = {}
    held: dict[int, list[int]] = {}
    for segment in segments:
        gap = segment.free
        if not gap or segment.empty:
            continue
        here: set[int] = set()
        for block in segment.blocks:
            if block.state != INACTIVE:
                site = stacks.sites[block.stack]
                here.add(site)
                row = held.setdefault(site, [0, 0])
                row[0] += 1
                row[1] += block.size
        each, left = divmod(gap, len(here))
        for n, site in enumerate(sorted(here)):
            share[site] = share.get(site, 0) + each + (n < left)
            count[site] = count.get(site, 0) + 1
        if len(here) == 1:
            alone[site] = alone.get(site, 0) + gap
    rows = [
        Holder(
            site=site_of(stacks.frames[site], held[site][0], held[site][1]),
            segments=count[site],
            share=size,
            alone=alone.get(site, 0),
        )
        for site, size in share.items()
    ]
    return sorted(rows, key=lambda row: -row.share)


def what_if(segments: Iterable[Segment]) -> WhatIf:
    """Return what expandable segments could give back, of the common pool (a graph's pool needs its gaps at replay)."""
    now = low = high = gaps = already = 0
    for segment in segments:
        if segment.pool != DEFAULT_POOL:
            continue
        if segment.expandable:
            already += segment.size
            continue
        if segment.empty:
            now += segment.size
            continue
        page = SMALL_PAGE if segment.small else LARGE_PAGE
        for start, end in _free_runs(segment):
            gaps += end - start
            low += _whole_pages(start, end, page)
            high += _whole_pages(start, end, DRIVER_PAGE)
    return WhatIf(now=now, low=low, high=high, gaps=gaps, already_expandable=already)


def _free_runs(segment: Segment) -> Iterable[tuple[int, int]]:
    """Yield where free space begins and ends, from the segment's start; neighbours that did not merge are one."""
    at = 0
    begun: int | None = None
    for block in segment.blocks:
        if block.state == INACTIVE:
            begun = at if begun is None else begun
        elif begun is not None:
            yield begun, at
            begun = None
        at += block.size
    if begun is not None:
        yield begun, at


def _whole_pages(start: int, end: int, page: int) -> int:
    first, last = -(-start // page), end // page
    return max(0, last - first) * page
