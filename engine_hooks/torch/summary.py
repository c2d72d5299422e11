"""From recorded allocations to a summary: what was short-lived, and which lines allocated most. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine_hooks.allocator import MAX_SITES, SiteRow
from engine_hooks.names import shown

SHORT_MICROSECONDS = 100_000
_PARTS = 3  # of a file's path
_MAX_SITE = 160
_FREES = ("free_requested", "free_completed")  # the first of the two counts: then the program has let go
_TORCH = ("/torch/", "<")


class Summary(NamedTuple):
    """In the terms of :class:`engine_hooks.allocator.HistoryRow`."""

    entries: int
    allocations: int
    allocated_bytes: int
    short_lived: int | None
    short_lived_bytes: int | None
    still_held_bytes: int
    sites: tuple[SiteRow, ...]


@dataclass(slots=True)
class _Site:
    allocations: int = 0
    bytes: int = 0
    short: int = 0


def summarise(traces: Iterable[Sequence[Mapping[str, Any]]]) -> Summary:
    """Return what ``traces``, one per device in order of time, say. Allocations from before them are left out."""
    sites: dict[str, _Site] = defaultdict(_Site)
    entries = short = short_bytes = held = 0
    timed = True
    for trace in traces:
        entries += len(trace)
        living: dict[int, tuple[int | None, int, _Site]] = {}
        for entry in trace:
            action = entry["action"]
            if action == "alloc":
                site = sites[site_of(entry.get("frames") or ())]
                site.allocations += 1
                site.bytes += entry["size"]
                living[entry["addr"]] = (entry.get("time_us"), entry["size"], site)
            elif action in _FREES and (found := living.pop(entry["addr"], None)):
                began, size, site = found
                ended = entry.get("time_us")
                if began is None or ended is None:
                    timed = False
                elif ended - began < SHORT_MICROSECONDS:
                    short, short_bytes = short + 1, short_bytes + size
                    site.short += 1
        held += sum(size for _, size, _ in living.values())
    return Summary(
        entries=entries,
        allocations=sum(site.allocations for site in sites.values()),
        allocated_bytes=sum(site.bytes for site in sites.values()),
        short_lived=short if timed else None,
        short_lived_bytes=short_bytes if timed else None,
        still_held_bytes=held,
        sites=_most(sites, timed=timed),
    )


def site_of(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return the innermost line that is not torch's own, as ``file:line function``; the innermost where all are."""
    if not frames:
        return "unknown"
    frame = next((f for f in frames if not any(word in str(f.get("filename", "")) for word in _TORCH)), frames[0])
    name = "/".join(str(frame.get("filename", "?")).split("/")[-_PARTS:])
    text = f"{name}:{frame.get('line', 0)} {frame.get('name', '')}".strip()
    return shown(text[-_MAX_SITE:])


def _most(sites: Mapping[str, _Site], *, timed: bool) -> tuple[SiteRow, ...]:
    """The lines with most bytes, then those with most allocations that are not among them."""
    half = MAX_SITES // 2
    by_bytes = sorted(sites, key=lambda name: (-sites[name].bytes, name))
    by_count = sorted(sites, key=lambda name: (-sites[name].allocations, name))
    chosen = dict.fromkeys([*by_bytes[: MAX_SITES - half], *by_count[:half]])
    return tuple(
        SiteRow(
            site=name,
            allocations=sites[name].allocations,
            bytes=sites[name].bytes,
            short_lived=sites[name].short if timed else None,
        )
        for name in sorted(chosen, key=lambda name: (-sites[name].bytes, name))
    )
