"""What a process that uses a CUDA device says about torch's allocator there. Sizes are bytes; None: not known.

Counters are told once a second. What takes longer to find out comes only in the reports that have it anew: a walk over
the segments every five seconds, events when they happen (and again with walks, for an agent that has just come back),
the outcome of a recording when it has ended.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from engine_hooks.wire_types import Message, Name, Text

MIB = 1024 * 1024
# Upper bounds of the sizes of inactive blocks, in bytes: a block of 16 MiB counts as 16, not as 32.
BAND_BOUNDS = tuple(n * MIB for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
MAX_DEVICES = 16
MAX_PRIVATE_POOLS = 8
MAX_TAGS = 8
MAX_EVENTS = 6
MAX_SITES = 40
MAX_HEAD = 1000
OTHER_POOLS = "other"

# Kinds of events. "memory": words of the engine's own about too little memory, before anything failed.
OOM, MEMORY = "oom", "memory"
CUDA_ERRORS = (
    "illegal_address",
    "launch_failure",
    "device_assert",
    "ecc",
    "nvlink",
    "misaligned_address",
    "illegal_instruction",
    "launch_timeout",
    "device_lost",
    "collective",
    "library",
    "driver",
)

Size = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
Head = Annotated[str, msgspec.Meta(max_length=MAX_HEAD, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]
Bands = Annotated[tuple[Count, ...], msgspec.Meta(max_length=len(BAND_BOUNDS) + 1)]
Reasons = Annotated[dict[Name, Text], msgspec.Meta(max_length=16)]


class DeviceRow(Message, frozen=True, kw_only=True):
    """The allocator's counters of one device. ``device``: torch's index in this process; ``uuid``: the driver's name.

    ``reserved``: what torch has from the driver; ``active``: of that, in use or waiting for another stream;
    ``allocated``: in use; ``requested``: what was asked for before rounding; ``inactive_split``: free parts of blocks
    that were split, which can't be given back. ``private``: reserved for private pools (CUDA graphs, sleep mode).
    """

    device: Annotated[int, msgspec.Meta(ge=0, le=1024)]
    uuid: Name = ""
    allocated_bytes: Size | None = None
    allocated_peak_bytes: Size | None = None
    reserved_bytes: Size | None = None
    reserved_peak_bytes: Size | None = None
    active_bytes: Size | None = None
    active_peak_bytes: Size | None = None
    requested_bytes: Size | None = None
    requested_peak_bytes: Size | None = None
    inactive_split_bytes: Size | None = None
    inactive_split_peak_bytes: Size | None = None
    small_allocated_bytes: Size | None = None
    small_reserved_bytes: Size | None = None
    large_allocated_bytes: Size | None = None
    large_reserved_bytes: Size | None = None
    private_reserved_bytes: Size | None = None
    retries_total: Count | None = None
    ooms_total: Count | None = None
    device_allocs_total: Count | None = None
    device_frees_total: Count | None = None


class PoolRow(Message, frozen=True, kw_only=True):
    """The small (blocks up to 1 MiB) or the large part of the pools that all allocations share."""

    kind: Name
    segments: Count
    reserved_bytes: Size
    active_bytes: Size
    free_bytes: Size
    largest_free_bytes: Size


class PrivatePoolRow(Message, frozen=True, kw_only=True):
    """A pool of its own, as a CUDA graph or the sleep mode has. ``pool``: torch's id; ``tags``: sleep mode's names."""

    pool: Name
    segments: Count
    reserved_bytes: Size
    active_bytes: Size
    tags: Name = ""


class SegmentsRow(Message, frozen=True, kw_only=True):
    """What a walk over one device's segments has found.

    Free blocks are those of the pools that all share, small and large, not of private ones: ``free_bytes`` in all,
    ``largest_free_bytes`` in one, ``whole_free_bytes`` in segments that nothing is in, which can be given back.
    ``band_blocks``, ``band_bytes``: free blocks by size, up to each of ``BAND_BOUNDS`` and above the last.
    ``streams``: streams that have segments; ``expandable_bytes``: reserved in expandable segments.
    """

    device: Annotated[int, msgspec.Meta(ge=0, le=1024)]
    segments: Count
    blocks: Count
    reserved_bytes: Size
    active_bytes: Size
    free_bytes: Size
    largest_free_bytes: Size
    whole_free_bytes: Size
    band_blocks: Bands
    band_bytes: Bands
    streams: Count
    expandable_segments: Count
    expandable_bytes: Size
    pools: Annotated[tuple[PoolRow, ...], msgspec.Meta(max_length=2)]
    private: Annotated[tuple[PrivatePoolRow, ...], msgspec.Meta(max_length=MAX_PRIVATE_POOLS + 1)] = ()


class WalkRow(Message, frozen=True, kw_only=True):
    """A walk at ``monotonic``. ``seconds``: what it took, most of it with the interpreter held; ``period_seconds``:
    until the next, lengthened where walks take long.
    """

    monotonic: float
    seconds: float
    period_seconds: float
    devices: Annotated[tuple[SegmentsRow, ...], msgspec.Meta(max_length=MAX_DEVICES)]


class TagRow(Message, frozen=True, kw_only=True):
    """Sleep mode's memory by tag: ``bytes`` in all, ``mapped_bytes`` of them on the device now, ``backed_up_bytes`` in
    host memory. torch goes on counting what is not mapped as reserved.
    """

    tag: Name
    device: Annotated[int, msgspec.Meta(ge=0, le=1024)]
    allocations: Count
    bytes: Size
    mapped_bytes: Size | None
    backed_up_bytes: Size | None


class AllocatorRow(Message, frozen=True, kw_only=True):
    """torch's allocator in one process. ``reason``: why nothing is told, such as no CUDA in this process.

    ``backend``: native, cudaMallocAsync or pluggable; ``settings``: what its configuration says, as text. ``fields``:
    how many of the counters that we know this torch has. ``unsupported``: what can't be told, and why.
    """

    reason: Text = ""
    backend: Name = ""
    settings: Text = ""
    expandable_segments: bool | None = None
    max_split_bytes: Size | None = None
    garbage_collection_threshold: float | None = None
    fields: Count = 0
    devices: Annotated[tuple[DeviceRow, ...], msgspec.Meta(max_length=MAX_DEVICES)] = ()
    walk: WalkRow | None = None
    tags: Annotated[tuple[TagRow, ...], msgspec.Meta(max_length=MAX_TAGS)] = ()
    unsupported: Reasons = msgspec.field(default_factory=dict)


class MemoryEvent(Message, frozen=True, kw_only=True):
    """Something that failed for memory's or the device's sake, at ``at`` (Unix seconds, the last time).

    ``sequence`` numbers the events of a process; one that comes again says more or has happened again (``count``).
    ``requested``, ``limit`` (the device's size, or the part of it that this process may take) and ``device_free`` are
    what torch's allocator says; the rest was read in that moment. ``where``: the call that failed. ``snapshot``: the
    file with the segments, or why there is none.
    """

    sequence: Count
    kind: Name
    at: float
    count: Count = 1
    where: Name = ""
    message: Head = ""
    device: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None
    requested_bytes: Size | None = None
    limit_bytes: Size | None = None
    device_free_bytes: Size | None = None
    allocated_bytes: Size | None = None
    reserved_bytes: Size | None = None
    private_reserved_bytes: Size | None = None
    private_active_bytes: Size | None = None
    free_bytes: Size | None = None
    largest_free_bytes: Size | None = None
    expandable_segments: bool | None = None
    snapshot: Text = ""


class SiteRow(Message, frozen=True, kw_only=True):
    """A line of code that allocated while a recording ran. ``short_lived``: those that lasted less than 100 ms."""

    site: Text
    allocations: Count
    bytes: Size
    short_lived: Count | None = None


class HistoryRow(Message, frozen=True, kw_only=True):
    """The outcome of a recording of allocations that began at ``started_at`` (Unix seconds).

    ``seconds``: how long it ran; ``read_seconds``: what reading it took. ``entries``: recorded events; ``full``: there
    were more, the oldest are lost. ``still_held``: allocated in it and not freed. ``sites``: those that allocated most
    bytes and those that allocated most often. ``reason``: why there is no outcome. ``short_lived``: see ``SiteRow``;
    None where this torch records no times.
    """

    sequence: Count
    started_at: float
    seconds: float
    read_seconds: float = 0.0
    entries: Count = 0
    full: bool = False
    allocations: Count = 0
    allocated_bytes: Size = 0
    short_lived: Count | None = None
    short_lived_bytes: Size | None = None
    still_held_bytes: Size = 0
    sites: Annotated[tuple[SiteRow, ...], msgspec.Meta(max_length=MAX_SITES)] = ()
    reason: Text = ""
