"""Call sites, as people and other files see them."""

from __future__ import annotations

from collections.abc import Iterable

from agent.snapshot.model import INACTIVE, Frame, Segment, Stacks
from agent.snapshot.report import Site


def site_label(frame: Frame) -> str:
    """Return a frame for people: its file with two folders at most, line and function."""
    if not frame.filename:
        return frame.name
    parts = frame.filename.replace("\\", "/").split("/")
    return f"{'/'.join(parts[-3:])}:{frame.line} {frame.name}"


def site_of(frame: Frame, count: int, size: int) -> Site:
    """Return the site that a frame is, with what it holds."""
    return Site(
        label=site_label(frame), filename=frame.filename, line=frame.line, name=frame.name, count=count, size=size
    )


def live_by_stack(segments: Iterable[Segment]) -> dict[int, list[int]]:
    """Return count and bytes of what is in use, by stack."""
    rows: dict[int, list[int]] = {}
    for segment in segments:
        for block in segment.blocks:
            if block.state != INACTIVE:
                row = rows.get(block.stack)
                if row is None:
                    rows[block.stack] = [1, block.size]
                else:
                    row[0] += 1
                    row[1] += block.size
    return rows


def live(segments: Iterable[Segment], stacks: Stacks) -> list[Site]:
    """Return what is in use by call site, the largest first."""
    rows: dict[int, list[int]] = {}
    for stack, (count, size) in live_by_stack(segments).items():
        row = rows.setdefault(stacks.sites[stack], [0, 0])
        row[0] += count
        row[1] += size
    sites = [site_of(stacks.frames[site], count, size) for site, (count, size) in rows.items()]
    return sorted(sites, key=lambda site: -site.size)
