"""The result of looking at one snapshot: values for the screen, JSON and the page alike. Sizes are bytes."""

from __future__ import annotations

import msgspec

from agent.snapshot.model import PoolId


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A call site, and what it holds: ``label`` for people, the rest to tell it from others and to compare files."""

    label: str
    filename: str
    line: int
    name: str
    count: int
    size: int


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Free blocks of ``low`` <= size < ``high`` bytes; None where there is no upper end."""

    low: int
    high: int | None
    count: int
    size: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What is reserved and how it is used. ``reserved`` = ``allocated`` + ``awaiting`` + ``inactive``.

    ``fragmentation``: 1 - largest free block / all that is free; ``contiguity``: the same ratio the other way up;
    ``overcommit``: reserved / allocated. None where the divisor is zero.
    """

    segments: int
    reserved: int
    allocated: int
    awaiting: int
    inactive: int
    requested: int
    largest_free: int
    fragmentation: float | None
    contiguity: float | None
    overcommit: float | None


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: a block serves no other. ``pool`` (0, 0) is the common one, others are private (CUDA graphs)."""

    pool: PoolId
    stream: int
    kind: str
    expandable: bool | None
    usage: Usage


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who pins free space: a site whose blocks lie in segments that have gaps.

    ``share``: those segments' gaps, split evenly among the sites in each: shares add up. ``alone``: gaps of segments
    where nobody else is. ``site``: with what it holds in these segments.
    """

    site: Site
    segments: int
    share: int
    alone: int


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """What ``expandable_segments:True`` would give back of this layout, in the common pool.

    ``now``: segments that are free entirely: ``empty_cache()`` gives them back today. ``low``: whole free pages in the
    other segments, of the size that torch maps (2 MiB for small, 20 MiB for large blocks). ``high``: the same in pages
    of 2 MiB, the least that the driver maps. ``gaps``: all that is free in those segments. The layout itself would have
    been another: see docs/snapshot.md.
    """

    now: int
    low: int
    high: int
    gaps: int
    already_expandable: int


class Oom(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation that failed, and why: ``out``, ``fragmented`` or ``unusable``."""

    size: int
    device_free: int
    reserved: int
    inactive: int
    cause: str
    sentence: str
    site: str


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Allocations that did not end. ``tenths``: of the trace in which one was made; 10 is a steady leak."""

    site: Site
    allocations: int
    tenths: int


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a device's trace says. ``seconds`` is None where it has no times."""

    entries: int
    seconds: float | None
    actions: dict[str, int]
    open: tuple[Open, ...]
    open_total: int
    busiest: tuple[Site, ...]
    awaiting: int
    ooms: tuple[Oom, ...]
    ooms_total: int


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence for people. ``level``: bad, note or good."""

    level: str
    sentence: str


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One device. ``bands`` are of all free blocks; lists of sites are the largest, ``*_rest`` what they leave out."""

    device: int
    usage: Usage
    common: Usage
    pools: tuple[PoolRow, ...]
    bands: tuple[Band, ...]
    live: tuple[Site, ...]
    live_rest: int
    holders: tuple[Holder, ...]
    holders_rest: int
    what_if: WhatIf
    trace: TraceReport | None
    findings: tuple[Finding, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One file. ``notes``: what it doesn't say, or where it doesn't agree with itself."""

    file: str
    devices: tuple[DeviceReport, ...]
    settings: dict[str, str]
    notes: tuple[str, ...]
