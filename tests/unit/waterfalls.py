"""A GPU whose memory is known to the byte, as its driver and the processes on it would tell it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from agent.sources.device.state import GpuMemory, GpuProcess, GpuProcesses, GpuState
from agent.state import EngineState, MemberState
from agent.waterfall.build import summed, waterfalls
from agent.waterfall.state import Waterfall
from engine_hooks.allocator import AllocatorRow, DeviceRow, PrivatePoolRow, SegmentsRow, TagRow, WalkRow
from engine_hooks.members import WorkerRow
from tests.unit.allocators import make_allocator_state
from tests.unit.builders import make_engine, make_pool, make_torch_process, make_worker
from tests.unit.node_builders import make_gpu

GIB = 1 << 30
MIB = 1 << 20
GPU = "GPU-0000-0"
BLOCKS = 1001


@dataclass(frozen=True)
class Torch:
    """What torch holds in a process on one device, and ``context``: what it has beside torch."""

    active: int = 300 * MIB
    inactive: int = 100 * MIB
    graphs: int = 200 * MIB
    graphs_inactive: int = 50 * MIB
    context: int = 500 * MIB

    @property
    def reserved(self) -> int:
        return self.active + self.inactive + self.graphs


@dataclass(frozen=True)
class Rank:
    """A worker's own sizes. ``asleep``: sleep mode has its weights and KV off the device."""

    weights: int = 4 * GIB
    draft: int = 200 * MIB
    lora: int = 100 * MIB
    encoder: int = 60 * MIB
    kv: int = 2002 * MIB
    asleep: bool = False
    sleeps: bool = False
    torch: Torch = Torch()

    @property
    def loaded(self) -> int:
        return self.weights + self.draft + self.lora

    @property
    def named(self) -> int:
        return self.loaded + self.encoder + self.kv

    @property
    def off(self) -> int:
        return self.loaded + self.kv if self.asleep else 0


@dataclass(frozen=True)
class Truth:
    """``rest``: what the driver has handed out and books on nobody."""

    ranks: dict[int, Rank] = field(default_factory=lambda: {101: Rank()})
    trainers: dict[int, Torch] = field(default_factory=dict)
    foreign: dict[int, int] = field(default_factory=dict)
    driver: int = 600 * MIB
    rest: int = 30 * MIB
    free: int = 40 * GIB

    def booked(self) -> dict[int, int]:
        """What the driver books on each process."""
        ranks = {pid: r.named + r.torch.reserved - r.off + r.torch.context for pid, r in self.ranks.items()}
        return ranks | {pid: t.reserved + t.context for pid, t in self.trainers.items()} | self.foreign

    def gpu(self, **changes: Any) -> GpuState:
        """What the driver says."""
        booked = self.booked()
        used = sum(booked.values()) + self.rest
        rows = tuple(GpuProcess(pid=pid, used_bytes=size, kind="C") for pid, size in booked.items())
        memory = GpuMemory(total=used + self.driver + self.free, used=used, free=self.free, reserved=self.driver)
        values = {"uuid": GPU, "memory": memory, "processes": GpuProcesses(rows=rows, count=len(rows))}
        return make_gpu("0", **values | changes)

    def engines(self) -> tuple[EngineState, ...]:
        """One engine per rank, called by its pid."""
        return tuple(engine_of(str(pid), worker_of(pid, rank)) for pid, rank in self.ranks.items())

    def processes(self) -> tuple[MemberState, ...]:
        """The PyTorch processes that belong to none."""
        return tuple(trainer_of(pid, torch) for pid, torch in self.trainers.items())

    def parts(self) -> dict[tuple[str, str], int]:
        """What the waterfall should say, zeros left out."""
        found: dict[tuple[str, str], int] = {}
        for pid, rank in self.ranks.items():
            owner, awake = str(pid), not rank.asleep
            kv = rank.kv * awake
            held, idle = kv * 300 // BLOCKS, kv * 200 // BLOCKS
            found |= {
                ("weights", owner): rank.weights * awake,
                ("draft_model", owner): rank.draft * awake,
                ("lora", owner): rank.lora * awake,
                ("encoder_cache", owner): rank.encoder,
                ("kv_held", owner): held,
                ("kv_cached_idle", owner): idle,
                ("kv_empty", owner): kv - held - idle,
            }
        torches = {str(pid): rank.torch for pid, rank in self.ranks.items()}
        for owner, torch in (torches | {f"torch/{pid}": torch for pid, torch in self.trainers.items()}).items():
            found |= {
                ("graphs", owner): torch.graphs,
                ("torch_active", owner): torch.active,
                ("torch_inactive", owner): torch.inactive,
                ("context", owner): torch.context,
            }
        found |= {("other_processes", ""): sum(self.foreign.values()), ("driver", ""): self.driver}
        return {key: size for key, size in (found | {("free", ""): self.free}).items() if size}

    def waterfall(self, **changes: Any) -> Waterfall:
        """What kvtide makes of it."""
        (found,) = waterfalls((self.gpu(**changes),), self.engines(), self.processes(), host_pids=True)
        return found


def device_row(torch: Torch, named: int = 0, **changes: Any) -> DeviceRow:
    """The allocator's counters."""
    reserved = torch.reserved + named
    active = torch.active + named + torch.graphs - torch.graphs_inactive
    values: dict[str, Any] = {
        "device": 0,
        "uuid": GPU,
        "reserved_bytes": reserved,
        "active_bytes": active,
        "allocated_bytes": active,
        "requested_bytes": active,
        "private_reserved_bytes": torch.graphs,
    }
    return DeviceRow(**values | changes)


def allocator_of(torch: Torch, rank: Rank | None = None, **changes: Any) -> AllocatorRow:
    """All that a process says of its allocator."""
    row = device_row(torch, rank.named if rank else 0)
    graphs = PrivatePoolRow(
        pool="0.1", segments=3, reserved_bytes=torch.graphs, active_bytes=torch.graphs - torch.graphs_inactive
    )
    private, tags = (graphs,), ()
    if rank is not None and (rank.sleeps or rank.asleep):
        sizes = {"weights": rank.loaded, "kv_cache": rank.kv}
        tags = tuple(
            TagRow(
                tag=tag, device=0, allocations=9, bytes=size, mapped_bytes=size * (not rank.asleep), backed_up_bytes=0
            )
            for tag, size in sizes.items()
        )
        private += tuple(
            PrivatePoolRow(pool=f"1.{tag}", segments=1, reserved_bytes=size, active_bytes=size, tags=tag)
            for tag, size in sizes.items()
        )
    assert row.reserved_bytes is not None
    assert row.active_bytes is not None
    segments = SegmentsRow(
        device=0,
        segments=9,
        blocks=20,
        reserved_bytes=row.reserved_bytes,
        active_bytes=row.active_bytes,
        free_bytes=0,
        largest_free_bytes=0,
        whole_free_bytes=0,
        band_blocks=(),
        band_bytes=(),
        streams=1,
        expandable_segments=0,
        expandable_bytes=0,
        pools=(),
        private=private,
    )
    walk = WalkRow(monotonic=1.0, seconds=0.001, period_seconds=5.0, devices=(segments,))
    values: dict[str, Any] = {"backend": "native", "devices": (row,), "walk": walk, "tags": tags}
    return AllocatorRow(**values | changes)


def worker_of(pid: int, rank: Rank, told: AllocatorRow | None = None, /, **changes: Any) -> MemberState:
    """A worker with all that it says."""
    row = WorkerRow(
        tensor_parallel_rank=0,
        pipeline_parallel_rank=0,
        device="cuda:0",
        device_uuid=GPU,
        kv_bytes=rank.kv,
        kv_blocks=BLOCKS,
        parameter_bytes=rank.weights,
        draft_bytes=rank.draft,
        lora_bytes=rank.lora,
        encoder_cache_bytes=rank.encoder,
    )
    state = make_allocator_state(row=told or allocator_of(rank.torch, rank))
    return make_worker(**{"pid": pid, "own_pid": pid, "worker": row, "allocator": state} | changes)


def trainer_of(pid: int, torch: Torch, **changes: Any) -> MemberState:
    """A PyTorch process that belongs to no engine."""
    state = make_allocator_state(row=allocator_of(torch))
    return make_torch_process(**{"pid": pid, "own_pid": pid, "process": str(pid), "allocator": state} | changes)


def engine_of(name: str, *members: MemberState, **changes: Any) -> EngineState:
    """An engine whose core is a process of its own."""
    pid = 9000 + members[0].pid if members else 9000
    values: dict[str, Any] = {"engine": name, "pid": pid, "own_pid": pid, "members": members, "pool": make_pool()}
    return make_engine(**values | changes)


def sizes(waterfall: Waterfall) -> dict[tuple[str, str], int]:
    """The parts by name and owner, zeros left out."""
    return {(part.part, part.owner): part.bytes for part in summed(waterfall.parts) if part.bytes}


def check_identity(waterfall: Waterfall) -> None:
    """Whatever the sources say: the parts and the remainder are the GPU, and no part is below zero."""
    assert all(part.bytes >= 0 for part in waterfall.parts)
    assert waterfall.total_bytes is not None
    assert waterfall.unattributed_bytes is not None
    assert sum(part.bytes for part in waterfall.parts) + waterfall.unattributed_bytes == waterfall.total_bytes


def sleeping(truth: Truth) -> Truth:
    """The same with all of its engines asleep."""
    return replace(truth, ranks={pid: replace(rank, asleep=True) for pid, rank in truth.ranks.items()})


def waterfall_of(
    gpu: GpuState, *engines: Any, processes: tuple[Any, ...] = (), host_pids: bool | None = True
) -> Waterfall:
    (found,) = waterfalls((gpu,), engines, processes, host_pids=host_pids)
    return found


def reasons(found: Waterfall) -> str:
    return "; ".join(found.reasons)
