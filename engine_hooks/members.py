"""What the processes around an engine core say once a second: its workers, and the API servers in front of it; and
what a PyTorch process says that belongs to no engine.

Sizes are bytes. None says that a number is not known.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from engine_hooks.allocator import MAX_EVENTS, AllocatorRow, HistoryRow, MemoryEvent
from engine_hooks.levers.orders import MAX_LEVERS, LeaseRow
from engine_hooks.own_memory import OwnMemoryRow
from engine_hooks.wire_types import MAX_HOOKS, Message, Name, Text

CORE, WORKER, FRONTEND, TORCH = "core", "worker", "frontend", "torch"

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Total = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
MAX_FRONT_TENANTS, MAX_REASONS = 64, 16


class WorkerRow(Message, frozen=True, kw_only=True):
    """One rank's model and KV cache, as they were when the cache had been allocated.

    ``device``: as torch writes it ("cpu", "cuda:0"), in this process's own numbering; ``device_uuid``: the driver's
    name for it, empty where there is none. ``kv_bytes``: storages of the KV cache, each counted once however many
    layers lie on it; ``kv_blocks``: blocks in them, the null block included. ``parameter_bytes``: weights and buffers.
    ``draft_bytes``: those of the draft model that the model does not share; ``lora_bytes``: slots for adapters.
    ``encoder_cache_bytes`` is of now: None where the model has no encoder for other inputs than text. ``mps``: whether
    the pipe of an MPS server was there for this process when it took its device; None where that is no CUDA device.
    """

    tensor_parallel_rank: Count
    pipeline_parallel_rank: Count
    device: Name
    device_uuid: Name = ""
    kv_bytes: Size | None = None
    kv_blocks: Count | None = None
    parameter_bytes: Size | None = None
    draft_bytes: Size | None = None
    lora_bytes: Size | None = None
    encoder_cache_bytes: Size | None = None
    mps: bool | None = None


class RefusedRow(Message, frozen=True, kw_only=True):
    """How many requests of ``tenant`` admission has refused since the API server started, by reason."""

    tenant: Name
    reasons: Annotated[dict[Name, Total], msgspec.Meta(max_length=MAX_REASONS)]


class HygieneRow(Message, frozen=True, kw_only=True):
    """Recent prompts of ``tenant``: the shares (0..1) of invisible characters and of repeated text, in a sample.
    ``requests``: prompts that were looked at since the API server started.
    """

    tenant: Name
    requests: Total
    invisible_ratio: float
    repeated_ratio: float


class FrontendRow(Message, frozen=True, kw_only=True):
    """One API server of ``count``; ``requests``: those that it has taken and not answered to the end."""

    count: Count
    requests: Count | None = None
    refused: Annotated[tuple[RefusedRow, ...], msgspec.Meta(max_length=MAX_FRONT_TENANTS + 1)] = ()
    hygiene: Annotated[tuple[HygieneRow, ...], msgspec.Meta(max_length=MAX_FRONT_TENANTS + 1)] = ()


class MemberReport(Message, frozen=True, kw_only=True):
    """A member at ``monotonic`` (CLOCK_MONOTONIC seconds). ``resident_bytes``: this process's own memory in RAM, pages
    that it shares with others included. ``allocator``: torch's, in a worker and in a process that called
    ``engine_hooks.torch.attach``; ``events`` and ``history``: only in reports that have something new of it.
    ``in_force``: what it has been ordered and is held to now. ``errors`` and ``off``: exceptions of our hooks in this
    process by hook, and those that were switched off, with the reason. ``memory``: each ten seconds, with its cgroup.
    """

    monotonic: float
    resident_bytes: Size | None
    worker: WorkerRow | None = None
    frontend: FrontendRow | None = None
    allocator: AllocatorRow | None = None
    events: Annotated[tuple[MemoryEvent, ...], msgspec.Meta(max_length=MAX_EVENTS)] = ()
    history: HistoryRow | None = None
    in_force: Annotated[tuple[LeaseRow, ...], msgspec.Meta(max_length=MAX_LEVERS)] = ()
    errors: Annotated[dict[Name, int], msgspec.Meta(max_length=MAX_HOOKS)] = msgspec.field(default_factory=dict)
    off: Annotated[dict[Name, Text], msgspec.Meta(max_length=MAX_HOOKS)] = msgspec.field(default_factory=dict)
    memory: OwnMemoryRow | None = None
