"""How a GPU's memory adds up: a pure function of what the driver says and what the processes on it say.

Each part has a source of its own:

=================  ================================================================================================
weights            storages of the model's parameters and buffers, counted by the hooks in each worker
kv_*               storages of the KV cache, counted in each worker, split as the engine's pool is split
graphs             private pools of torch's allocator that are not sleep mode's, by the walk over its segments
torch_active       active bytes of torch's allocator, less what is named above
torch_inactive     reserved less active bytes: what fragmentation keeps
context            what the driver books on the process less what torch reserved: CUDA context, NCCL, other libraries
other_processes    what the driver books on processes that don't report to us
driver, free       the driver's own words
=================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from agent.sources.device.state import GpuState
from agent.state import EngineState, MemberState
from agent.waterfall.owners import Holder, holders
from agent.waterfall.state import Part, Waterfall
from engine_hooks.allocator import DeviceRow

PAGE = 2 * 1024 * 1024  # the driver maps device memory, and books it on processes, by pages of this size


def waterfalls(
    gpus: Iterable[GpuState], engines: tuple[EngineState, ...], processes: tuple[MemberState, ...]
) -> tuple[Waterfall, ...]:
    """Return the waterfall of each GPU that works; of a GPU in MIG mode those of its instances."""
    return tuple(
        of_gpu(unit, tuple(holders(engines, processes, unit)))
        for gpu in gpus
        if gpu.up
        for unit in (gpu.instances or (gpu,))
        if unit.up
    )


def summed(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield ``parts`` with those of one name and owner added up: several ranks of an engine may share a GPU."""
    sums: dict[tuple[str, str], Part] = {}
    for part in parts:
        known = sums.get((part.part, part.owner))
        sums[part.part, part.owner] = (
            part
            if known is None
            else msgspec.structs.replace(
                known,
                bytes=known.bytes + part.bytes,
                error_bytes=known.error_bytes + part.error_bytes,
                count=known.count + part.count,
            )
        )
    yield from sums.values()


def of_gpu(gpu: GpuState, ours: tuple[Holder, ...]) -> Waterfall:
    """Return the waterfall of ``gpu``, on which ``ours`` are the processes that tell us what they hold."""
    reasons: list[str] = []
    parts = [part for holder in ours for part in _of_process(holder, reasons)]
    memory = gpu.memory
    booked = _booked(gpu, reasons)
    if booked is not None:
        parts += _contexts(ours, booked, reasons)
        foreign = [used for pid, used in booked.items() if pid not in {holder.pid for holder in ours}]
        parts.append(
            Part(part="other_processes", bytes=sum(foreign), error_bytes=PAGE * len(foreign), count=len(foreign))
        )
    if memory is None:
        if gpu.unified:
            reasons.insert(0, "this GPU shares the host's memory: no sum is claimed")
        else:
            reasons.insert(0, f"the GPU's memory is not known: {gpu.unavailable.get('memory', 'not read yet')}")
        return _made(gpu, None, parts, reasons)
    if memory.reserved is None:
        reasons.append("this driver does not tell what it keeps for itself: that is in the remainder")
    else:
        parts.append(Part(part="driver", bytes=memory.reserved, error_bytes=0))
    parts.append(Part(part="free", bytes=memory.free, error_bytes=PAGE))
    return _made(gpu, memory.total, parts, reasons)


def _made(gpu: GpuState, total: int | None, parts: list[Part], reasons: list[str]) -> Waterfall:
    return Waterfall(
        gpu=gpu.gpu,
        uuid=gpu.uuid or "",
        total_bytes=total,
        parts=tuple(parts),
        unattributed_bytes=None if total is None else total - sum(part.bytes for part in parts),
        error_bytes=sum(part.error_bytes for part in parts),
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _of_process(holder: Holder, reasons: list[str]) -> Iterator[Part]:
    """Yield the parts of what torch has reserved in one process; they add up to that."""
    row, owner = holder.row, holder.owner
    if row.reserved_bytes is None or row.active_bytes is None:
        reasons.append(f"{owner}: torch's allocator does not tell what it holds")
        return
    asleep = asleep_bytes(holder)
    unclaimed = sum(asleep.values())  # what no named part takes off: pages' rounding, tags that we don't know
    named = 0
    for name, tag, size in _named(holder):
        named += size
        gone = min(size, asleep.get(tag, 0))
        unclaimed -= gone
        if name == "kv":
            yield from _kv(holder, size - gone, whole=not gone)
        else:
            yield Part(part=name, bytes=size - gone, error_bytes=0, owner=owner)
    graphs_reserved = graphs_active = 0
    if holder.segments is not None:
        graphs = [pool for pool in holder.segments.private if not pool.tags]
        graphs_reserved, graphs_active = sum(p.reserved_bytes for p in graphs), sum(p.active_bytes for p in graphs)
        yield Part(part="graphs", bytes=graphs_reserved, error_bytes=0, owner=owner, count=len(graphs))
    elif row.private_reserved_bytes:
        reasons.append(f"{owner}: its segments were not walked yet: graphs' pools are in torch_active")
    active = row.active_bytes - graphs_active - named - unclaimed
    if active < 0:
        reasons.append(
            f"{owner}: what is named is more than torch has in use: some of it lies elsewhere, or is counted twice"
        )
    yield Part(part="torch_active", bytes=active, error_bytes=_rounding(row), owner=owner)
    inactive = row.reserved_bytes - row.active_bytes - (graphs_reserved - graphs_active)
    yield Part(part="torch_inactive", bytes=inactive, error_bytes=0, owner=owner)


def asleep_bytes(holder: Holder) -> dict[str, int]:
    """Return by tag what sleep mode has handed back behind torch's back: torch goes on counting it as in use."""
    return {tag.tag: tag.bytes - tag.mapped_bytes for tag in holder.tags if tag.mapped_bytes is not None}


def _rounding(row: DeviceRow) -> int:
    """Return what torch's rounding adds to the sizes that were asked for, which is how weights and KV are counted."""
    if row.allocated_bytes is None or row.requested_bytes is None:
        return 0
    return max(0, row.allocated_bytes - row.requested_bytes)


def _named(holder: Holder) -> Iterator[tuple[Literal["weights", "kv"], str, int]]:
    """Yield what the worker has counted itself: its name, sleep mode's name for it, and its size."""
    if holder.worker is not None:
        if holder.worker.parameter_bytes is not None:
            yield "weights", "weights", holder.worker.parameter_bytes
        if holder.worker.kv_bytes is not None:
            yield "kv", "kv_cache", holder.worker.kv_bytes


def _kv(holder: Holder, size: int, *, whole: bool) -> Iterator[Part]:
    """Split the KV cache as the pool is split; in one piece where the pool is not known, or asleep."""
    pool, blocks = holder.pool, holder.worker.kv_blocks if holder.worker is not None else None
    if not whole or pool is None or not blocks or pool.cached_idle is None:
        yield Part(part="kv_unsplit", bytes=size, error_bytes=0, owner=holder.owner)
        return
    held, idle = size * pool.held // blocks, size * pool.cached_idle // blocks
    yield Part(part="kv_held", bytes=held, error_bytes=0, owner=holder.owner)
    yield Part(part="kv_cached_idle", bytes=idle, error_bytes=0, owner=holder.owner)
    yield Part(part="kv_empty", bytes=size - held - idle, error_bytes=0, owner=holder.owner)


def _booked(gpu: GpuState, reasons: list[str]) -> dict[int, int] | None:
    """Return what the driver books on each process, by pid; None where it does not tell."""
    if gpu.processes is None:
        why = gpu.unavailable.get("processes") or gpu.unsupported.get("processes") or "not read yet"
        reasons.append(
            f"the driver does not tell who holds what ({why}): contexts and other processes are in the remainder"
        )
        return None
    untold = [row.pid for row in gpu.processes.rows if row.used_bytes is None]
    if untold:
        reasons.append(f"the driver does not tell what {len(untold)} processes hold: that is in the remainder")
    if gpu.processes.count > len(gpu.processes.rows):
        reasons.append(f"of {gpu.processes.count} processes only the largest {len(gpu.processes.rows)} are looked at")
    booked: dict[int, int] = {}
    for row in gpu.processes.rows:
        if row.used_bytes is not None:  # one with a compute and a graphics context is listed twice, with one sum
            booked[row.pid] = max(row.used_bytes, booked.get(row.pid, 0))
    return booked


def _contexts(ours: tuple[Holder, ...], booked: dict[int, int], reasons: list[str]) -> Iterator[Part]:
    """Yield what each process of ours holds beside torch's allocator: CUDA context, NCCL, other libraries."""
    for holder in ours:
        used, reserved = booked.get(holder.pid), holder.row.reserved_bytes
        if used is None:
            reasons.append(
                f"{holder.owner}: the driver lists no process {holder.pid} here (it speaks the host's pids): its "
                "context is in another part or in the remainder"
            )
        elif reserved is not None:
            mapped = reserved - sum(asleep_bytes(holder).values())
            yield Part(part="context", bytes=used - mapped, error_bytes=PAGE, owner=holder.owner)
