"""Two or more snapshots of one process, in the order that they were taken: what grew."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from agent.snapshot import sites
from agent.snapshot.model import Segment, Snapshot
from agent.snapshot.report import Finding, Site, Usage
from agent.snapshot.usage import usage
from agent.units import human_bytes

KEPT = 30
GROWS = 64 << 20  # bytes: less is no finding
STEPS = 2  # in a row that a site has to grow in before it is called steady
BLOCKS = 8  # more of them than at first: a few large ones are load
EVEN = 0.25  # of the mean step: that much each step has to be
_Key = tuple[str, int, str]


class SiteGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """A call site: its bytes in use in each file, and how it changed from the first to the last."""

    site: Site
    sizes: tuple[int, ...]
    grown: int
    count_grown: int
    steady: bool


class DeviceChange(msgspec.Struct, frozen=True, kw_only=True):
    """One device: its sums in each file; segments by address and size that only the last or only the first file has."""

    device: int
    usages: tuple[Usage, ...]
    gained: int
    gained_size: int
    lost: int
    lost_size: int
    sites: tuple[SiteGrowth, ...]
    sites_rest: int
    findings: tuple[Finding, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; ``files`` in the order given."""

    files: tuple[str, ...]
    devices: tuple[DeviceChange, ...]


def compare(snapshots: Sequence[Snapshot], files: Sequence[str]) -> Comparison:
    """Return what changed from the first to the last of at least two snapshots."""
    devices = sorted({segment.device for snapshot in snapshots for segment in snapshot.segments})
    return Comparison(files=tuple(files), devices=tuple(_device(device, snapshots) for device in devices))


def _device(device: int, snapshots: Sequence[Snapshot]) -> DeviceChange:
    parts = [[segment for segment in snapshot.segments if segment.device == device] for snapshot in snapshots]
    usages = tuple(usage(segments) for segments in parts)
    tables = [
        {_key(site): site for site in sites.live(segments, snapshot.stacks)}
        for segments, snapshot in zip(parts, snapshots, strict=True)
    ]
    growth = sorted(_growth(tables), key=lambda row: (-abs(row.grown), row.site.label))
    first, last = _addresses(parts[0]), _addresses(parts[-1])
    changed = [row for row in growth if row.grown]
    return DeviceChange(
        device=device,
        usages=usages,
        gained=len(last - first),
        gained_size=sum(size for _, size in last - first),
        lost=len(first - last),
        lost_size=sum(size for _, size in first - last),
        sites=tuple(changed[:KEPT]),
        sites_rest=sum(row.grown for row in changed[KEPT:]),
        findings=_findings(usages, growth),
    )


def _growth(tables: Sequence[dict[_Key, Site]]) -> list[SiteGrowth]:
    rows = []
    for key in dict.fromkeys(key for table in tables for key in table):
        found = [table.get(key) for table in tables]
        sizes = tuple(site.size if site else 0 for site in found)
        counts = [site.count if site else 0 for site in found]
        grown = sizes[-1] - sizes[0]
        least = max(1.0, EVEN * grown / (len(sizes) - 1))
        steady = all(later - earlier >= least for earlier, later in itertools.pairwise(sizes))
        rows.append(
            SiteGrowth(
                site=next(site for site in reversed(found) if site),
                sizes=sizes,
                grown=grown,
                count_grown=counts[-1] - counts[0],
                steady=steady and len(sizes) > STEPS and counts[-1] - counts[0] >= BLOCKS,
            )
        )
    return rows


def _findings(usages: Sequence[Usage], growth: Sequence[SiteGrowth]) -> tuple[Finding, ...]:
    first, last = usages[0], usages[-1]
    allocated, reserved = last.allocated - first.allocated, last.reserved - first.reserved
    rows = []
    leading = next((row for row in growth if row.grown > 0), None)
    if allocated >= GROWS and leading is not None:
        often = f", in each of {len(leading.sizes) - 1} steps" if leading.steady else ""
        sentence = (
            f"{human_bytes(allocated)} more are in use than at first; most at {leading.site.label}: "
            f"{human_bytes(leading.grown)} in {leading.count_grown:,} more blocks{often}."
        )
        if not leading.steady:
            alone = len(usages) == STEPS
            sentence += (
                " Two files can't tell a leak from load: take a third." if alone else " It did not grow in every step."
            )
        rows.append(Finding(level="bad" if leading.steady else "note", sentence=sentence))
    if reserved - allocated >= GROWS:
        sentence = f"{human_bytes(reserved - allocated)} more are reserved without being in use: fragmentation grew."
        rows.append(Finding(level="note", sentence=sentence))
    if not rows:
        rows.append(Finding(level="good", sentence="Nothing grew that matters."))
    return tuple(rows)


def _key(site: Site) -> _Key:
    return (site.filename, site.line, site.name)


def _addresses(segments: Sequence[Segment]) -> set[tuple[int, int]]:
    return {(segment.address, segment.size) for segment in segments}
