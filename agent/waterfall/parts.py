"""What one process holds on a GPU, as parts: by its own words, and by what the driver books on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agent.units import human_bytes
from agent.waterfall.owners import Holder, Work
from agent.waterfall.state import Part, PartName
from engine_hooks.allocator import DeviceRow

PAGE = 2 * 1024 * 1024  # the driver maps device memory, and books it on processes, by pages of this size
BOOKED = "the driver books on it"
WEIGHTS = "weights"  # the tag that sleep mode has for all that loading a model has made


class _Named(NamedTuple):
    """What a worker has counted by its storages. ``tag``: sleep mode's name for where it lies, if it may be asleep."""

    part: PartName
    tag: str
    size: int | None
    work: Work


def of_process(holder: Holder, used: int | None, reasons: list[str]) -> Iterator[Part]:
    """Yield the parts of one process; ``used`` is what the driver books on it, None where it does not tell.

    No part is below zero: what does not fit is left to the remainder, with a reason.
    """
    row, owner = holder.row, holder.owner
    asleep = _asleep(holder)
    mapped_named = 0
    named = 0
    for one in _named(holder):
        if one.size is None:
            continue
        gone = min(one.size, asleep.get(one.tag, 0))
        if gone:
            asleep[one.tag] -= gone
        named += one.size
        mapped_named += one.size - gone
        yield from _kv(one, gone) if one.part == "kv_unsplit" else (_part(one.part, one.size - gone, one.work.owner),)
    if row is None or row.reserved_bytes is None:
        if used is not None:
            part: PartName = "context" if holder.told and row is None else "untold"
            yield _part(part, _left(used - mapped_named, owner, "it names", BOOKED, reasons), owner, PAGE)
        return
    in_use = row.active_bytes if row.active_bytes is not None else row.allocated_bytes
    if in_use is None:
        reasons.append(f"{owner}: torch does not tell what of its memory is in use")
        in_use = row.reserved_bytes
    graphs, graphs_active, asleep_inactive = 0, 0, 0
    if holder.segments is not None:
        pools = [pool for pool in holder.segments.private if not pool.tags]
        graphs, graphs_active = sum(pool.reserved_bytes for pool in pools), sum(pool.active_bytes for pool in pools)
        since = abs(row.reserved_bytes - holder.segments.reserved_bytes)  # a walk is some seconds old
        yield _part("graphs", graphs, owner, since)
        unused = sum(max(0, pool.reserved_bytes - pool.active_bytes) for pool in holder.segments.private if pool.tags)
        asleep_inactive = min(unused, sum(asleep.values()))
    elif row.private_reserved_bytes != 0:
        reasons.append(f"{owner}: what CUDA graphs keep is in torch's memory in use ({holder.no_walk})")
    active = in_use - graphs_active - named - (sum(asleep.values()) - asleep_inactive)
    inactive = row.reserved_bytes - in_use - (graphs - graphs_active) - asleep_inactive
    yield _part(
        "torch_active", _left(active, owner, "its parts come to", "torch has in use", reasons), owner, _slack(row)
    )
    kept = _left(inactive, owner, "what is in use and its graphs come to", "torch has reserved", reasons)
    yield _part("torch_inactive", kept, owner)
    if used is not None:
        beside = used - mapped_bytes(holder)
        yield _part("context", _left(beside, owner, _counts(holder), BOOKED, reasons), owner, PAGE)


def mapped_bytes(holder: Holder) -> int:
    """Return what a process itself accounts for on the GPU: torch's memory, or what is named where that is not told."""
    if holder.row is not None and holder.row.reserved_bytes is not None:
        return max(0, holder.row.reserved_bytes - sum(_asleep(holder).values()))
    return sum(one.size for one in _named(holder) if one.size is not None)


def _part(name: PartName, size: int, owner: str, error: int = 0) -> Part:
    return Part(part=name, bytes=size, error_bytes=error, owner=owner)


def _left(size: int, owner: str, claim: str, truth: str, reasons: list[str]) -> int:
    """Return ``size``, or zero where ``claim`` comes to more than ``truth``."""
    if size < -PAGE:
        reasons.append(f"{owner}: {claim} {human_bytes(-size)} more than {truth}: the remainder is too low by that")
    return max(0, size)


def _counts(holder: Holder) -> str:
    untold = any(tag.mapped_bytes is None for tag in holder.tags)
    return "torch, which can't tell here what sleeps, counts" if untold else "torch counts"


def _asleep(holder: Holder) -> dict[str, int]:
    """Return by tag what sleep mode has handed back behind torch's back: torch goes on counting it as in use."""
    gone: dict[str, int] = {}
    for tag in holder.tags:
        if tag.mapped_bytes is not None:
            gone[tag.tag] = gone.get(tag.tag, 0) + max(0, tag.bytes - tag.mapped_bytes)
    return gone


def _slack(row: DeviceRow) -> int:
    """Return what torch's rounding adds to the sizes that were asked for, which is how weights and KV are counted."""
    if row.allocated_bytes is None or row.requested_bytes is None:
        return 0
    return max(0, row.allocated_bytes - row.requested_bytes)


def _named(holder: Holder) -> Iterator[_Named]:
    for work in holder.work:
        yield _Named("weights", WEIGHTS, work.row.parameter_bytes, work)
        yield _Named("draft_model", WEIGHTS, work.row.draft_bytes, work)
        yield _Named("lora", WEIGHTS, work.row.lora_bytes, work)
        yield _Named("encoder_cache", "", work.row.encoder_cache_bytes, work)
        yield _Named("kv_unsplit", "kv_cache", work.row.kv_bytes, work)


def _kv(named: _Named, gone: int) -> Iterator[Part]:
    """Split the KV cache as the pool is split; in one piece where the pool is not known, or asleep."""
    size, blocks, pool, owner = named.size or 0, named.work.row.kv_blocks, named.work.pool, named.work.owner
    if gone or not blocks or pool is None or pool.cached_idle is None or pool.held + pool.cached_idle > blocks:
        yield _part("kv_unsplit", size - gone, owner)
        return
    held, idle = size * pool.held // blocks, size * pool.cached_idle // blocks
    yield _part("kv_held", held, owner)
    yield _part("kv_cached_idle", idle, owner)
    yield _part("kv_empty", size - held - idle, owner)
