"""The processes of ours that hold memory on a GPU, and what each of them says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent.sources.device.state import GpuState
from agent.state import EngineState, MemberState, PoolState
from engine_hooks.allocator import AllocatorRow, DeviceRow, SegmentsRow, TagRow
from engine_hooks.members import WORKER, WorkerRow


@dataclass(frozen=True, slots=True)
class Holder:
    """A process on one GPU. ``row``: the allocator's counters there; ``segments``: the last walk; ``tags``: sleep mode.

    ``worker`` is there for an engine's worker whose device this is, ``pool`` with it while the engine tells of its own.
    """

    owner: str
    pid: int
    row: DeviceRow
    segments: SegmentsRow | None
    tags: tuple[TagRow, ...]
    worker: WorkerRow | None
    pool: PoolState | None


def bare(uuid: str) -> str:
    """Return ``uuid`` without what it is of: torch calls a MIG instance's GPU-..., the driver MIG-..."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


def holders(engines: Iterable[EngineState], processes: Iterable[MemberState], gpu: GpuState) -> Iterator[Holder]:
    """Yield those of ``engines``' workers, and of other PyTorch ``processes``, that have memory on ``gpu``."""
    for engine in engines:
        for member in engine.members:
            if member.role == WORKER:
                yield from _of(member, engine.engine, engine.pool, gpu)
    for process in processes:
        yield from _of(process, f"torch/{process.process}", None, gpu)


def _of(member: MemberState, owner: str, pool: PoolState | None, gpu: GpuState) -> Iterator[Holder]:
    allocator: AllocatorRow | None = member.allocator.row if member.allocator is not None else None
    if allocator is None:
        return
    pids = {row.pid for row in gpu.processes.rows} if gpu.processes is not None else set()
    for row in allocator.devices:
        if not _is_on(row.uuid, member.pid, pids, gpu):
            continue
        worker = member.worker
        mine = worker is not None and (
            bare(worker.device_uuid) == bare(row.uuid) or worker.device == f"cuda:{row.device}"
        )
        walk = allocator.walk
        yield Holder(
            owner=owner,
            pid=member.pid,
            row=row,
            segments=next((one for one in walk.devices if one.device == row.device), None)
            if walk is not None
            else None,
            tags=tuple(tag for tag in allocator.tags if tag.device == row.device),
            worker=worker if mine else None,
            pool=pool if mine else None,
        )


def _is_on(uuid: str, pid: int, pids: set[int], gpu: GpuState) -> bool:
    """Whether torch's device of this uuid is ``gpu``. In a MIG instance torch may give the whole card's uuid: then the
    driver's list of the instance's processes decides.
    """
    if uuid and bare(uuid) in {bare(known) for known in (gpu.uuid, *gpu.compute_instances) if known}:
        return True
    return gpu.parent is not None and pid in pids
