"""torch's CUDA allocator and what failed, as lines: a line per rank and device, then the failures."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from agent.faces.lines import BAD, SHOWN, Line
from agent.oom.log import Failure
from agent.state import MemberState
from agent.units import human_bytes, human_seconds
from engine_hooks.allocator import AllocatorRow, DeviceRow, HistoryRow, SegmentsRow

FRESH_SECONDS = 600.0  # a failure that is older is shown, and no longer as what is wrong now
_NOTICED = 0.4  # fragmentation; of a part of the memory that matters
_MATTERS = 0.05


def lines(members: Iterable[MemberState], *, gpus: bool) -> Iterator[Line]:
    """Yield a line per device of each member that tells of its allocator; members that have none in one line.

    ``gpus``: this node has some; elsewhere that a process does not use one is not worth a line.
    """
    without: dict[str, list[str]] = {}
    for member in members:
        if member.allocator is None:
            continue
        row, name = member.allocator.row, name_of(member)
        if row.reason and gpus:
            without.setdefault(row.reason, []).append(name)
        walks = {found.device: found for found in row.walk.devices} if row.walk is not None else {}
        for device in row.devices:
            yield _device(name, row, device, walks.get(device.device))
        for tag in row.tags:
            yield Line("sleep mode", f"{name} cuda:{tag.device} {tag.tag}: {_tag(tag.bytes, tag.mapped_bytes)}", "dim")
        if member.allocator.history is not None:
            yield from _history(name, member.allocator.history)
    for reason, names in without.items():
        shown = f"{', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}"
        yield Line("torch", f"{shown}: {reason}", "dim")


def failures(found: Iterable[Failure], now: float) -> Iterator[Line]:
    """Yield the last failures, newest first, with what they come to."""
    every = list(found)
    for failure in every[:SHOWN]:
        event = failure.event
        when = time.strftime("%H:%M:%S", time.localtime(event.at))
        times = f", {event.count:,} times" if event.count > 1 else ""
        where = f" in {event.where}" if event.where else ""
        device = "" if event.device is None else f" cuda:{event.device}"
        head = f"{when} {name_of(failure)}{device}: {event.kind.replace('_', ' ')}{where}{times}."
        judged = failure.judgement
        text = f"{judged.cause}: {judged.sentence} {judged.remedy}" if judged is not None else event.message
        kept = f" Segments in {event.snapshot}" if event.snapshot.startswith("/") else ""
        yield Line("failed", f"{head} {text}{kept}", BAD if now - event.at <= FRESH_SECONDS else "dim")
    if len(every) > SHOWN:
        yield Line("failed", f"{len(every) - SHOWN} more", "dim")


def name_of(who: MemberState | Failure) -> str:
    """Return the process's name, or its rank in its engine."""
    return who.process or f"rank {who.rank}"


def _device(name: str, row: AllocatorRow, device: DeviceRow, found: SegmentsRow | None) -> Line:
    parts = [
        f"{human_bytes(size)} {word}"
        for word, size in (
            ("reserved", device.reserved_bytes),
            ("allocated", device.allocated_bytes),
            ("inactive", _inactive(device)),
        )
        if size is not None
    ]
    text = f"{name} cuda:{device.device}: {', '.join(parts) or 'sizes not known'}"
    style = ""
    if found is not None and found.free_bytes:
        ratio = 1 - found.largest_free_bytes / found.free_bytes
        text += f"; {human_bytes(found.free_bytes)} free, the largest block {human_bytes(found.largest_free_bytes)}"
        text += f" (fragmentation {ratio:.0%})"
        if ratio > _NOTICED and found.free_bytes > _MATTERS * found.reserved_bytes:
            style = "yellow"
    private = sum(pool.reserved_bytes for pool in found.private if not pool.tags) if found is not None else 0
    text += f"; {human_bytes(private)} in private pools" if private else ""
    if device.retries_total:
        text += f"; {device.retries_total:,} retries"
    if device.ooms_total:
        text += f"; {device.ooms_total:,} out of memory"
    if row.backend and row.backend != "native":
        text += f"; {row.backend}"
    return Line("torch", text, style)


def _inactive(device: DeviceRow) -> int | None:
    if device.reserved_bytes is None or device.active_bytes is None:
        return None
    return max(0, device.reserved_bytes - device.active_bytes)


def _tag(size: int, mapped: int | None) -> str:
    return f"{human_bytes(size)}, {'not known how much' if mapped is None else human_bytes(mapped)} on the device"


def _history(name: str, row: HistoryRow) -> Iterator[Line]:
    ran = f"{name}: recorded for {human_seconds(row.seconds)}"
    if row.reason:
        yield Line("recording", f"{ran}: {row.reason}", "yellow")
        return
    text = f"{ran}: {row.allocations:,} allocations of {human_bytes(row.allocated_bytes)}"
    if row.short_lived is not None and row.short_lived_bytes is not None:
        text += f", {row.short_lived:,} of them ({human_bytes(row.short_lived_bytes)}) for less than 100 ms"
    text += ", the oldest lost" if row.full else ""
    yield Line("recording", text)
    for site in row.sites[:SHOWN]:
        yield Line("recording", f"{human_bytes(site.bytes)} in {site.allocations:,}: {site.site}", "dim")
