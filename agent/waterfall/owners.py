"""The processes of ours that hold memory on a GPU, and what each of them says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from agent.sources.device.state import GpuState
from agent.state import EngineState, MemberState, PoolState
from engine_hooks.allocator import AllocatorRow, DeviceRow, SegmentsRow, TagRow
from engine_hooks.members import WorkerRow

UNSEEN = -1  # the pid of a process that the agent does not see; the driver may call several by 0


class Work(msgspec.Struct, frozen=True):
    """One rank of an engine in a process. ``pool`` is there while the engine tells of its own."""

    owner: str
    row: WorkerRow
    pool: PoolState | None


class Holder(msgspec.Struct, frozen=True):
    """A process on one GPU. ``row``: the allocator's counters there; ``segments``: the last walk, ``no_walk`` why there
    is none; ``tags``: sleep mode. ``told``: it says what torch holds, so without a row that is nothing here.
    """

    owner: str
    pid: int
    told: bool
    row: DeviceRow | None
    segments: SegmentsRow | None
    no_walk: str
    tags: tuple[TagRow, ...]
    work: tuple[Work, ...]


@dataclass(slots=True)
class Process:
    """One process of ours: an engine's core may have its worker in it, or several engines one process."""

    owner: str
    pid: int
    allocator: AllocatorRow | None = None
    work: list[Work] = field(default_factory=list)
    uuids: set[str] = field(default_factory=set)  # of the devices that it says it is on


def ours(engines: Iterable[EngineState], processes: Iterable[MemberState]) -> tuple[Process, ...]:
    """Return the processes of ``engines``, and other PyTorch ``processes``, whose link is up, each once."""
    found: dict[tuple[int, ...], Process] = {}

    def process(owner: str, state: EngineState | MemberState) -> Process:
        # Of two that the agent does not see, their own word decides whether they are one.
        key = (state.pid,) if state.pid > 0 else (state.pid_namespace, state.own_pid)
        return found.setdefault(key, Process(owner, state.pid or UNSEEN))

    def add(owner: str, pool: PoolState | None, member: MemberState) -> None:
        one = process(owner, member)
        if member.worker is not None:
            one.work.append(Work(owner, member.worker, pool))
            one.uuids.add(bare(member.worker.device_uuid))
        if member.allocator is not None and not member.allocator.row.reason:  # of several one tells, for all
            one.owner, one.allocator = owner, member.allocator.row
            one.uuids.update(bare(device.uuid) for device in one.allocator.devices)

    for engine in engines:
        if engine.link_up:
            process(engine.engine, engine)
        for member in engine.members:
            if member.link_up:
                add(engine.engine, engine.pool, member)
    for member in processes:
        if member.link_up:
            add(f"torch/{member.process}", None, member)
    return tuple(found.values())


@lru_cache(maxsize=1024)
def bare(uuid: str | None) -> str:
    """Return ``uuid`` without what it is of: torch calls a MIG instance's GPU-..., the driver MIG-..."""
    return (uuid or "").removeprefix("GPU-").removeprefix("MIG-").lower()


class Place:
    """A GPU or MIG instance, as one asks for who is on it. ``card``: the uuid of the whole GPU."""

    def __init__(self, gpu: GpuState, card: str | None) -> None:
        self._names = {bare(name) for name in (gpu.uuid, *gpu.compute_instances)} - {""}
        # In an instance torch may give the whole card's uuid, and old torch gives none: the driver's list decides then.
        self._vague = {"", bare(card)} - self._names
        self._pids = {row.pid for row in gpu.processes.rows} if gpu.processes is not None else set()

    def holders(self, processes: Iterable[Process]) -> Iterator[Holder]:
        """Yield those of ``processes`` that say they are here, or that the driver says are."""
        for process in processes:
            if process.pid not in self._pids and self._names.isdisjoint(process.uuids):
                continue  # most of them: each is on one GPU of eight
            told = process.allocator
            devices = told.devices if told is not None else ()
            rows = [row for row in devices if self._has(row.uuid, process.pid, alone=len(devices) == 1)]
            for row in rows:
                yield _holder(process, row, tuple(work for work in process.work if _is_of(work.row, row)))
            if not rows:
                work = tuple(one for one in process.work if not devices and bare(one.row.device_uuid) in self._names)
                if work or process.pid in self._pids:
                    yield _holder(process, None, work)

    def _has(self, uuid: str, pid: int, *, alone: bool) -> bool:
        return bare(uuid) in self._names or (alone and bare(uuid) in self._vague and pid in self._pids)


def _is_of(worker: WorkerRow, row: DeviceRow) -> bool:
    """Whether a worker's device is that of ``row``, which is of the same process and counts as it does."""
    if worker.device_uuid and row.uuid:
        return bare(worker.device_uuid) == bare(row.uuid)
    return worker.device == f"cuda:{row.device}"


def _holder(process: Process, row: DeviceRow | None, work: tuple[Work, ...]) -> Holder:
    told = process.allocator
    walk = told.walk if told is not None and row is not None else None
    return Holder(
        owner=process.owner,
        pid=process.pid,
        # Without any device there may be none, or its counters could not be read.
        told=told is not None and (bool(told.devices) or "counters" not in told.unsupported),
        row=row,
        segments=next((one for one in walk.devices if row and one.device == row.device), None) if walk else None,
        no_walk=told.unsupported.get("walk", "not walked yet") if told is not None else "",
        tags=tuple(tag for tag in told.tags if row and tag.device == row.device) if told is not None else (),
        work=work,
    )
