"""torch's CUDA allocator in workers (labels engine, role, rank) and in other PyTorch processes (label process)."""

from __future__ import annotations

from exporters.catalogue.base import Metric

# One of engine and process is empty, which to Prometheus is a label that is not there.
_PROCESS = ("engine", "process", "role", "rank")
_DEVICE = (*_PROCESS, "device")


def _bytes(name: str, text: str, *, detail: bool = False) -> Metric:
    return Metric(f"kvtide_allocator_{name}_bytes", "gauge", "bytes", _DEVICE, text, detail=detail)


def _calls(name: str, unit: str, text: str, *, detail: bool = False) -> Metric:
    return Metric(f"kvtide_allocator_{name}_total", "counter", unit, _DEVICE, text, detail=detail)


TORCH_PROCESS_UP = Metric(
    "kvtide_torch_process_up",
    "gauge",
    "boolean",
    ("process",),
    "1 while this PyTorch process, which belongs to no engine, reports; it has called engine_hooks.torch.attach.",
)
TORCH_PROCESS_RESIDENT_BYTES = Metric(
    "kvtide_torch_process_resident_bytes",
    "gauge",
    "bytes",
    ("process",),
    "Memory of this PyTorch process in RAM, pages that it shares with others included.",
    detail=True,
)
ALLOCATOR_UP = Metric(
    "kvtide_allocator_up",
    "gauge",
    "boolean",
    _PROCESS,
    "1 while torch's CUDA allocator of this process is read; 0 where it has no CUDA: /api/v1/state says why.",
)
ALLOCATOR_INFO = Metric(
    "kvtide_allocator_info",
    "gauge",
    "info",
    (*_DEVICE, "uuid", "backend", "expandable_segments"),
    "Always 1: the device by the driver's name, the allocator's backend, and whether it uses expandable segments.",
    detail=True,
)
ALLOCATOR_ALLOCATED_BYTES = _bytes("allocated", "Memory that tensors use, rounding included.")
ALLOCATOR_ALLOCATED_PEAK_BYTES = _bytes(
    "allocated_peak",
    "The most that tensors have used since the process began or its program set the peak back.",
    detail=True,
)
ALLOCATOR_REQUESTED_BYTES = _bytes("requested", "What was asked for, before rounding.", detail=True)
ALLOCATOR_ACTIVE_BYTES = _bytes("active", "Memory in use, or freed and waiting for another stream to be done with it.")
ALLOCATOR_RESERVED_BYTES = _bytes(
    "reserved",
    "Memory that torch has from the driver. In sleep mode torch goes on counting what has been given back: see "
    "kvtide_allocator_tag_mapped_bytes.",
)
ALLOCATOR_RESERVED_PEAK_BYTES = _bytes("reserved_peak", "The most that torch has had from the driver.", detail=True)
ALLOCATOR_INACTIVE_BYTES = _bytes("inactive", "Reserved and not active: kept by torch, used by nothing.")
ALLOCATOR_INACTIVE_SPLIT_BYTES = _bytes(
    "inactive_split", "Free parts of blocks that were split: they can't be given back to the driver."
)
ALLOCATOR_PRIVATE_RESERVED_BYTES = Metric(
    "kvtide_allocator_private_reserved_bytes",
    "gauge",
    "bytes",
    (*_DEVICE, "kind"),
    "Reserved for private pools, which nothing else may use, by kind: graphs (CUDA graphs) or sleep (sleep mode).",
)
ALLOCATOR_PRIVATE_ACTIVE_BYTES = Metric(
    "kvtide_allocator_private_active_bytes",
    "gauge",
    "bytes",
    (*_DEVICE, "kind"),
    "Of the memory reserved for private pools, what is in use.",
    detail=True,
)
ALLOCATOR_FREE_BYTES = _bytes(
    "free", "Free in the pools that all allocations share, by the last walk over the segments."
)
ALLOCATOR_LARGEST_FREE_BLOCK_BYTES = _bytes("largest_free_block", "The largest free block of the shared pools.")
ALLOCATOR_RELEASABLE_BYTES = _bytes(
    "releasable", "Segments of the shared pools that nothing is in: what giving back could give."
)
ALLOCATOR_FREE_BLOCKS = Metric(
    "kvtide_allocator_free_blocks",
    "gauge",
    "blocks",
    (*_DEVICE, "band"),
    "Free blocks of the shared pools by size; a block belongs to the band whose upper bound it does not exceed.",
    detail=True,
)
ALLOCATOR_FREE_BLOCK_BYTES = Metric(
    "kvtide_allocator_free_block_bytes",
    "gauge",
    "bytes",
    (*_DEVICE, "band"),
    "Bytes in free blocks of the shared pools by size.",
    detail=True,
)
ALLOCATOR_FRAGMENTATION_RATIO = Metric(
    "kvtide_allocator_fragmentation_ratio",
    "gauge",
    "ratio",
    _DEVICE,
    "1 - largest free block / total free, in the shared pools; absent where nothing is free. Of little meaning while "
    "little is free: read it beside kvtide_allocator_free_bytes.",
)
ALLOCATOR_OVERCOMMIT_RATIO = Metric(
    "kvtide_allocator_overcommit_ratio",
    "gauge",
    "ratio",
    _DEVICE,
    "Reserved / allocated; 1 where nothing is kept that is not used.",
    detail=True,
)
ALLOCATOR_SEGMENTS = Metric(
    "kvtide_allocator_segments", "gauge", "segments", _DEVICE, "Segments that torch has from the driver.", detail=True
)
ALLOCATOR_EXPANDABLE_BYTES = _bytes("expandable", "Reserved in expandable segments.", detail=True)
ALLOCATOR_STREAMS = Metric(
    "kvtide_allocator_streams",
    "gauge",
    "streams",
    _DEVICE,
    "Streams that have segments: what one has freed is of no use to another.",
    detail=True,
)
ALLOCATOR_RETRIES_TOTAL = _calls(
    "retries", "retries", "Allocations that failed at first, so that torch gave back all it could and tried again."
)
ALLOCATOR_OOMS_TOTAL = _calls("ooms", "failures", "Allocations that failed for good, by torch's own count.")
ALLOCATOR_DEVICE_ALLOCS_TOTAL = _calls("device_allocs", "calls", "Calls to the driver for memory.")
ALLOCATOR_DEVICE_FREES_TOTAL = _calls("device_frees", "calls", "Calls that gave memory back to the driver.")
ALLOCATOR_TAG_BYTES = Metric(
    "kvtide_allocator_tag_bytes",
    "gauge",
    "bytes",
    (*_DEVICE, "tag"),
    "Sleep mode's allocator: what it manages, by tag (weights, kv_cache).",
    detail=True,
)
ALLOCATOR_TAG_MAPPED_BYTES = Metric(
    "kvtide_allocator_tag_mapped_bytes",
    "gauge",
    "bytes",
    (*_DEVICE, "tag"),
    "Sleep mode's allocator: what of it is on the device now; absent where vLLM does not keep it.",
)
ALLOCATOR_TAG_BACKED_UP_BYTES = Metric(
    "kvtide_allocator_tag_backed_up_bytes",
    "gauge",
    "bytes",
    (*_DEVICE, "tag"),
    "Sleep mode's allocator: what of it lies in host memory.",
    detail=True,
)
ALLOCATOR_WALK_SECONDS = Metric(
    "kvtide_allocator_walk_seconds",
    "gauge",
    "seconds",
    _PROCESS,
    "What the last walk over the segments took on its side thread, most of it with Python's interpreter held.",
    detail=True,
)
ALLOCATOR_WALK_PERIOD_SECONDS = Metric(
    "kvtide_allocator_walk_period_seconds",
    "gauge",
    "seconds",
    _PROCESS,
    "Time between two walks: 5 s, longer where a walk would take more than 0.2 % of the time.",
    detail=True,
)
MEMORY_FAILURES_TOTAL = Metric(
    "kvtide_memory_failures_total",
    "counter",
    "failures",
    ("engine", "process", "kind", "cause"),
    "Failed allocations (kind oom, by cause: out, fragmented, foreign, unusable, host or unknown), refusals to start "
    "for want of memory (kind memory) and CUDA errors by kind, since the agent started.",
)
