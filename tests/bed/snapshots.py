"""Snapshots of torch's CUDA allocator, in the formats that torch writes, made without a GPU.

``AllocatorBed`` follows the rules of torch's caching allocator as far as a snapshot shows them: rounding to 512 bytes,
a pool of small and one of large blocks per stream and private pool, best fit, splitting, merging. What it writes has
the keys, the types and the sharing of objects of ``torch.cuda.memory._snapshot()``: frames are shared dicts, each
recorded allocation has a list of its own.
"""

from __future__ import annotations

import bisect
import copy
import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
ROUND = 512
SMALL_BLOCK, SMALL_SEGMENT = MIB, 2 * MIB
LARGE_SEGMENT, LARGE_OWN, LARGE_ROUND = 20 * MIB, 10 * MIB, 2 * MIB
BASE = 0x7F00_0000_0000
SETTINGS: dict[str, Any] = {
    "PYTORCH_CUDA_ALLOC_CONF": "",
    "max_split_size": -1,
    "garbage_collection_threshold": 0.0,
    "expandable_segments": False,
    "pinned_num_register_threads": 1,
    "release_lock_on_cudamalloc": False,
    "pinned_use_cuda_host_register": False,
    "roundup_power2_divisions": {"1": 0, "2": 0, "4": 0},
}

Frames = list[dict[str, Any]]
PoolId = tuple[int, int]
_Key = tuple[bool, int, PoolId]  # small, stream, pool


@dataclass
class _Block:
    address: int
    size: int
    segment: _Segment
    requested: int = 0
    state: str = "inactive"
    frames: Frames | None = None


@dataclass
class _Segment:
    address: int
    size: int
    stream: int
    small: bool
    pool: PoolId
    frames: Frames | None
    blocks: list[_Block] = field(default_factory=list)


class AllocatorBed:
    """One device's caching allocator. ``capacity``: bytes that it may reserve; beyond that an allocation fails."""

    def __init__(self, device: int = 0, capacity: int = 80 * GIB, expandable: bool = False) -> None:
        self.device = device
        self.capacity = capacity
        self.expandable = expandable
        self.reserved = 0
        self.segments: list[_Segment] = []
        self.trace: list[dict[str, Any]] = []
        self._live: dict[int, _Block] = {}
        self._free: dict[_Key, list[tuple[int, int, _Block]]] = {}
        self._next = BASE + device * (1 << 40)
        self._time_us = 1_700_000_000_000_000

    def alloc(self, size: int, frames: Frames | None = None, *, stream: int = 0, pool: PoolId = (0, 0)) -> int:
        """Allocate ``size`` bytes and return the address; MemoryError where the device is full."""
        frames = None if frames is None else list(frames)
        rounded = max(ROUND, -(-size // ROUND) * ROUND)
        small = rounded <= SMALL_BLOCK
        key = (small, stream, pool)
        block = self._fit(rounded, key) or self._grow(rounded, key, frames, size)
        rest = block.size - rounded
        if rest >= ROUND if small else rest > SMALL_BLOCK:
            tail = _Block(block.address + rounded, rest, block.segment)
            block.size = rounded
            blocks = block.segment.blocks
            blocks.insert(_index(blocks, block) + 1, tail)
            self._shelve(tail)
        block.state, block.requested, block.frames = "active_allocated", size, frames
        self._live[block.address] = block
        self._record("alloc", block.address, size, (stream, pool), frames)
        return block.address

    def free(self, address: int, wait: bool = False) -> None:
        """Free a block; with ``wait`` another stream still uses it, so that the free is only requested."""
        block = self._live.pop(address)
        segment = block.segment
        of = (segment.stream, segment.pool)
        self._record("free_requested", address, block.requested, of, None)
        if wait:
            block.state = "active_pending_free"
            return
        self._record("free_completed", address, block.requested, of, None)
        block.state, block.requested, block.frames = "inactive", 0, None
        at = _index(segment.blocks, block)
        for other in (at + 1, at - 1):
            if 0 <= other < len(segment.blocks) and segment.blocks[other].state == "inactive":
                neighbour = segment.blocks.pop(other)
                self._unshelve(neighbour)
                block.address = min(block.address, neighbour.address)
                block.size += neighbour.size
        self._shelve(block)

    def snapshot(self, frames: bool = True) -> dict[str, Any]:
        """Return what ``torch.cuda.memory._snapshot()`` of a recent torch would."""
        return {
            "segments": [self._segment(segment, frames) for segment in self.segments],
            "device_traces": [[] for _ in range(self.device)] + [self.trace],
            "allocator_settings": {**SETTINGS, "expandable_segments": self.expandable},
            "external_annotations": [],
        }

    def _fit(self, size: int, key: _Key) -> _Block | None:
        shelf = self._free.get(key, [])
        at = bisect.bisect_left(shelf, (size,))
        return shelf.pop(at)[2] if at < len(shelf) else None

    def _grow(self, size: int, key: _Key, frames: Frames | None, requested: int) -> _Block:
        small, stream, pool = key
        large = LARGE_SEGMENT if size < LARGE_OWN else -(-size // LARGE_ROUND) * LARGE_ROUND
        total = SMALL_SEGMENT if small else large
        if self.reserved + total > self.capacity:
            self._record("oom", self.capacity - self.reserved, requested, (stream, pool), frames)
            raise MemoryError(f"{total} bytes more than {self.capacity}")
        segment = _Segment(self._next, total, stream, small, pool, frames)
        self._next += total + 64 * MIB
        self.reserved += total
        block = _Block(segment.address, total, segment)
        segment.blocks.append(block)
        self.segments.append(segment)
        action = "segment_map" if self.expandable else "segment_alloc"
        self._record(action, segment.address, total, (stream, pool), frames)
        return block

    def _shelve(self, block: _Block) -> None:
        segment = block.segment
        shelf = self._free.setdefault((segment.small, segment.stream, segment.pool), [])
        bisect.insort(shelf, (block.size, block.address, block), key=lambda item: item[:2])

    def _unshelve(self, block: _Block) -> None:
        segment = block.segment
        shelf = self._free[segment.small, segment.stream, segment.pool]
        del shelf[bisect.bisect_left(shelf, (block.size, block.address), key=lambda item: item[:2])]

    def _record(self, action: str, address: int, size: int, of: tuple[int, PoolId], frames: Frames | None) -> None:
        stream, pool = of
        self._time_us += 37
        entry: dict[str, Any] = {
            "action": action,
            "device_free" if action == "oom" else "addr": address,
            "size": size,
            "stream": stream,
            "time_us": self._time_us,
            "compile_context": "N/A",
            "user_metadata": "",
            "pool_id": pool,
        }
        if frames is not None:
            entry["frames"] = frames
        self.trace.append(entry)

    def _segment(self, segment: _Segment, frames: bool) -> dict[str, Any]:
        blocks = [
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": block.state,
                "frames": (block.frames or []) if frames else [],
            }
            for block in segment.blocks
        ]
        return {
            "device": self.device,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": sum(b.size for b in segment.blocks if b.state == "active_allocated"),
            "active_size": sum(b.size for b in segment.blocks if b.state != "inactive"),
            "requested_size": sum(b.requested for b in segment.blocks if b.state == "active_allocated"),
            "stream": segment.stream,
            "segment_type": "small" if segment.small else "large",
            "segment_pool_id": segment.pool,
            "is_expandable": self.expandable,
            "frames": segment.frames or [],
            "blocks": blocks,
        }


def _index(blocks: list[_Block], block: _Block) -> int:
    return bisect.bisect_left(blocks, block.address, key=lambda other: other.address)


def as_torch_1_13(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the older form: a list of segments whose blocks have a history and no address."""
    segments = copy.deepcopy(snapshot["segments"])
    for segment in segments:
        for key in ("requested_size", "segment_pool_id", "is_expandable", "frames"):
            del segment[key]
        for block in segment["blocks"]:
            address, frames, requested = block.pop("address"), block.pop("frames"), block.pop("requested_size")
            if block["state"] != "inactive":
                block["history"] = [{"addr": address, "real_size": requested, "frames": frames}]
    return segments


def as_torch_2_0(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the form of torch 2.0: a dict with traces that have no times, blocks as in 1.13."""
    keys = ("action", "addr", "device_free", "size", "stream", "frames")
    traces = [[{key: entry[key] for key in keys if key in entry} for entry in t] for t in snapshot["device_traces"]]
    return {"segments": as_torch_1_13(snapshot), "device_traces": traces}


def stacks(count: int, depth: int = 24, seed: int = 0) -> list[Frames]:
    """Return ``count`` call stacks as a server has them, innermost frame first; outer frames are shared objects."""
    draw = random.Random(seed)
    root = "/srv/venv/lib/python3.11/site-packages/"
    outer: Frames = [
        {"name": f"step_{level}", "filename": f"{root}vllm/v1/engine/layer_{level}.py", "line": 40 + level}
        for level in range(depth - 4, 0, -1)
    ]
    inner: Frames = [
        {"name": "empty", "filename": f"{root}torch/_refs/__init__.py", "line": 4711},
        {"name": "_call_impl", "filename": f"{root}torch/nn/modules/module.py", "line": 1501},
    ]
    return [
        [
            *inner,
            {"name": f"forward_{n}", "filename": f"{root}vllm/model_executor/layers/op_{n}.py", "line": 10 + n},
            {"name": f"call_{n % 7}", "filename": f"{root}vllm/model_executor/models/model.py", "line": 90 + n % 7},
            *outer[draw.randrange(4) :],
        ]
        for n in range(count)
    ]


def server_like(steps: int = 3000, leak_every: int = 0, seed: int = 0, capacity: int = 80 * GIB) -> AllocatorBed:
    """Return the allocator of a server after ``steps`` steps: weights, a KV pool, a graph's pool, activations.

    ``leak_every``: each so many steps the last of ``stacks(24)`` keeps 3 MiB for ever; 0 for never.
    """
    draw = random.Random(seed)
    bed = AllocatorBed(capacity=capacity)
    sites = stacks(24)
    for layer in range(32):
        bed.alloc(436 * MIB + layer * ROUND, sites[0])
    bed.alloc(24 * GIB, sites[1])
    for _ in range(12):
        bed.alloc(draw.randrange(1, 30) * MIB, sites[2], stream=7, pool=(1, 0))
    live: list[int] = []
    for step in range(steps):
        live.append(bed.alloc(int(2 ** draw.uniform(9, 25)), sites[3 + draw.randrange(20)]))
        while len(live) > 60:
            bed.free(live.pop(draw.randrange(len(live))))
        if leak_every and step % leak_every == 0:
            bed.alloc(3 * MIB, sites[23])
    return bed


def write(snapshot: Any, path: Path, protocol: int = 4) -> Path:
    """Write a snapshot as ``torch.cuda.memory._dump_snapshot`` does, and return where."""
    with path.open("wb") as file:
        pickle.dump(snapshot, file, protocol=protocol)
    return path
