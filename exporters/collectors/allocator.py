"""torch's CUDA allocator, in workers and in processes of their own; and what failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from agent.state import AgentState
from engine_hooks.allocator import (
    BAND_BOUNDS,
    MIB,
    AllocatorRow,
    DeviceRow,
    PrivatePoolRow,
    SegmentsRow,
    TagRow,
    WalkRow,
)
from exporters import catalogue as c
from exporters.collectors.base import Sample, known
from exporters.collectors.rows import once

GRAPHS, SLEEP = "graphs", "sleep"
_YES_NO = {True: "true", False: "false", None: "unknown"}


def _size(number: int) -> str:
    return f"{number // MIB}MiB" if number < 1024 * MIB else f"{number // (1024 * MIB)}GiB"


BANDS = (
    f"0-{_size(BAND_BOUNDS[0])}",
    *(f"{_size(low)}-{_size(high)}" for low, high in pairwise(BAND_BOUNDS)),
    f"{_size(BAND_BOUNDS[-1])}+",
)


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield the counters of every device of every process, what the last walks found, and the failures."""
    for process in once(state.processes, lambda each: each.process):
        yield Sample(c.TORCH_PROCESS_UP, (process.process,), process.up)
    for labels, row in _rows(state):
        yield Sample(c.ALLOCATOR_UP, labels, not row.reason)
        for device in once(row.devices, lambda each: each.device):
            yield from _device((*labels, f"cuda:{device.device}"), device)
        for segments in once(row.walk.devices if row.walk is not None else (), lambda each: each.device):
            yield from _segments((*labels, f"cuda:{segments.device}"), segments)
        for tag in once(row.tags, lambda each: (each.device, each.tag)):
            yield from known(c.ALLOCATOR_TAG_MAPPED_BYTES, _tagged(labels, tag), tag.mapped_bytes)
    for count in state.failure_counts:
        yield Sample(c.MEMORY_FAILURES_TOTAL, (count.engine, count.process, count.kind, count.cause), count.count)


def collect_detail(state: AgentState) -> Iterator[Sample]:
    """Yield what is on the second page of it."""
    for process in once(state.processes, lambda each: each.process):
        yield from known(c.TORCH_PROCESS_RESIDENT_BYTES, (process.process,), process.resident_bytes)
    for labels, row in _rows(state):
        for device in once(row.devices, lambda each: each.device):
            where = (*labels, f"cuda:{device.device}")
            about = (*where, device.uuid, row.backend, _YES_NO[row.expandable_segments])
            yield Sample(c.ALLOCATOR_INFO, about, 1)
            yield from _device_detail(where, device)
        if row.walk is not None:
            yield from _walk_detail(labels, row.walk)
        for tag in once(row.tags, lambda each: (each.device, each.tag)):
            yield Sample(c.ALLOCATOR_TAG_BYTES, _tagged(labels, tag), tag.bytes)
            yield from known(c.ALLOCATOR_TAG_BACKED_UP_BYTES, _tagged(labels, tag), tag.backed_up_bytes)


def _rows(state: AgentState) -> Iterator[tuple[tuple[str, ...], AllocatorRow]]:
    """Yield the labels and the row of every process that has told of its allocator."""
    for engine in state.engines:
        for member in engine.members:
            if member.allocator is not None:
                yield (engine.engine, "", member.role, str(member.rank)), member.allocator.row
    for process in once(state.processes, lambda each: each.process):
        if process.allocator is not None:
            yield ("", process.process, process.role, str(process.rank)), process.allocator.row


def _device(labels: tuple[str, ...], row: DeviceRow) -> Iterator[Sample]:
    for metric, value in (
        (c.ALLOCATOR_ALLOCATED_BYTES, row.allocated_bytes),
        (c.ALLOCATOR_ACTIVE_BYTES, row.active_bytes),
        (c.ALLOCATOR_RESERVED_BYTES, row.reserved_bytes),
        (c.ALLOCATOR_INACTIVE_SPLIT_BYTES, row.inactive_split_bytes),
        (c.ALLOCATOR_RETRIES_TOTAL, row.retries_total),
        (c.ALLOCATOR_OOMS_TOTAL, row.ooms_total),
        (c.ALLOCATOR_DEVICE_ALLOCS_TOTAL, row.device_allocs_total),
        (c.ALLOCATOR_DEVICE_FREES_TOTAL, row.device_frees_total),
    ):
        yield from known(metric, labels, value)
    if row.reserved_bytes is not None and row.active_bytes is not None:
        yield Sample(c.ALLOCATOR_INACTIVE_BYTES, labels, max(0, row.reserved_bytes - row.active_bytes))


def _device_detail(labels: tuple[str, ...], row: DeviceRow) -> Iterator[Sample]:
    yield from known(c.ALLOCATOR_ALLOCATED_PEAK_BYTES, labels, row.allocated_peak_bytes)
    yield from known(c.ALLOCATOR_REQUESTED_BYTES, labels, row.requested_bytes)
    yield from known(c.ALLOCATOR_RESERVED_PEAK_BYTES, labels, row.reserved_peak_bytes)
    if row.reserved_bytes is not None and row.allocated_bytes:
        yield Sample(c.ALLOCATOR_OVERCOMMIT_RATIO, labels, row.reserved_bytes / row.allocated_bytes)


def _segments(labels: tuple[str, ...], row: SegmentsRow) -> Iterator[Sample]:
    yield Sample(c.ALLOCATOR_FREE_BYTES, labels, row.free_bytes)
    yield Sample(c.ALLOCATOR_LARGEST_FREE_BLOCK_BYTES, labels, row.largest_free_bytes)
    yield Sample(c.ALLOCATOR_RELEASABLE_BYTES, labels, row.whole_free_bytes)
    if row.free_bytes > 0:
        yield Sample(c.ALLOCATOR_FRAGMENTATION_RATIO, labels, 1 - row.largest_free_bytes / row.free_bytes)
    for kind, pools in _private(row).items():
        size = sum(pool.reserved_bytes for pool in pools)
        yield Sample(c.ALLOCATOR_PRIVATE_RESERVED_BYTES, (*labels, kind), size)


def _walk_detail(labels: tuple[str, ...], walk: WalkRow) -> Iterator[Sample]:
    yield Sample(c.ALLOCATOR_WALK_SECONDS, labels, walk.seconds)
    yield Sample(c.ALLOCATOR_WALK_PERIOD_SECONDS, labels, walk.period_seconds)
    for row in once(walk.devices, lambda each: each.device):
        where = (*labels, f"cuda:{row.device}")
        yield Sample(c.ALLOCATOR_SEGMENTS, where, row.segments)
        yield Sample(c.ALLOCATOR_EXPANDABLE_BYTES, where, row.expandable_bytes)
        yield Sample(c.ALLOCATOR_STREAMS, where, row.streams)
        yield from _bands(c.ALLOCATOR_FREE_BLOCKS, where, row.band_blocks)
        yield from _bands(c.ALLOCATOR_FREE_BLOCK_BYTES, where, row.band_bytes)
        for kind, pools in _private(row).items():
            yield Sample(c.ALLOCATOR_PRIVATE_ACTIVE_BYTES, (*where, kind), sum(pool.active_bytes for pool in pools))


def _private(row: SegmentsRow) -> dict[str, list[PrivatePoolRow]]:
    """Return the private pools by what they are for; there is always an entry for graphs."""
    kinds: dict[str, list[PrivatePoolRow]] = {GRAPHS: []}
    for pool in row.private:
        kinds.setdefault(SLEEP if pool.tags else GRAPHS, []).append(pool)
    return kinds


def _bands(metric: c.Metric, labels: tuple[str, ...], numbers: Iterable[int]) -> Iterator[Sample]:
    for band, number in zip(BANDS, numbers, strict=False):
        yield Sample(metric, (*labels, band), number)


def _tagged(labels: tuple[str, ...], tag: TagRow) -> tuple[str, ...]:
    return (*labels, f"cuda:{tag.device}", tag.tag)
