"""How a GPU's memory adds up: a pure function of what the driver says and what the processes on it say.

Each part has a source of its own:

=================  ================================================================================================
weights            storages of the model's parameters and buffers, counted by the hooks in each worker
draft_model, lora  likewise: of the draft model what the model does not share; slots for adapters
encoder_cache      storages of the encoder's outputs, counted once a second in each worker
kv_*               storages of the KV cache, counted in each worker, split as the engine's pool is split
graphs             private pools of torch's allocator that are not sleep mode's, by the walk over its segments
torch_active       active bytes of torch's allocator, less what is named above
torch_inactive     reserved less active bytes: what fragmentation keeps
context            what the driver books on the process less what torch reserved: CUDA context, NCCL, other libraries
untold             what the driver books on a process of ours that does not say what is in it
other_processes    what the driver books on processes that don't report to us
driver, free       the driver's own words
=================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from agent.sources.device.state import GpuState
from agent.state import EngineState, MemberState
from agent.waterfall.owners import Holder, Place, Process, ours
from agent.waterfall.parts import PAGE, mapped_bytes, of_process
from agent.waterfall.state import Part, Waterfall

Listed = dict[int, int | None]  # bytes by pid, None for N/A


def waterfalls(
    gpus: Iterable[GpuState],
    engines: Iterable[EngineState],
    processes: Iterable[MemberState],
    *,
    host_pids: bool | None,
) -> tuple[Waterfall, ...]:
    """Return the waterfall of each GPU that works; of a GPU in MIG mode those of its instances.

    ``host_pids``: whether the agent's pids are the host's, as the driver's are; None: not known.
    """
    known = ours(engines, processes)
    return tuple(
        of_gpu(unit, known, card=gpu.uuid, host_pids=host_pids)
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


def of_gpu(gpu: GpuState, processes: tuple[Process, ...], *, card: str | None, host_pids: bool | None) -> Waterfall:
    """Return the waterfall of ``gpu``, which is a part of ``card`` or all of it. ``processes``: those of ours."""
    reasons: list[str] = []
    here = tuple(Place(gpu, card).holders(processes))
    listed = _listed(gpu, reasons)
    parts = [part for one in here for part in of_process(one, listed.get(one.pid) if listed else None, reasons)]
    if listed is not None:
        parts.append(_others(here, listed, host_pids, reasons))
    memory = gpu.memory
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


def _listed(gpu: GpuState, reasons: list[str]) -> Listed | None:
    """Return what the driver books on each process, by pid; None where it does not tell."""
    if gpu.processes is None:
        why = gpu.unavailable.get("processes") or gpu.unsupported.get("processes") or "not read yet"
        reasons.append(f"who holds what is not known ({why}): contexts and other processes are in the remainder")
        return None
    rows = gpu.processes.rows
    untold = sum(row.used_bytes is None for row in rows)
    if untold:
        whom = "one process holds" if untold == 1 else f"{untold} processes hold"
        reasons.append(f"the driver does not tell what {whom}: beside torch's memory that is in the remainder")
    if gpu.processes.count > len(rows):
        reasons.append(
            f"of {gpu.processes.count} processes only {len(rows)} are looked at: the rest is in the remainder"
        )
    return {row.pid: row.used_bytes for row in rows}


def _others(here: tuple[Holder, ...], listed: Listed, host_pids: bool | None, reasons: list[str]) -> Part:
    """Return what processes hold that are not ours."""
    pids = {holder.pid for holder in here}
    foreign = [used for pid, used in listed.items() if used is not None and pid not in pids]
    strays = [holder for holder in here if holder.pid not in listed]
    strayed = 0
    if strays:
        names = ", ".join(dict.fromkeys(holder.owner for holder in strays))
        if host_pids:
            reasons.append(f"{names}: not in the driver's list of processes: a context is in the remainder")
        else:
            # The driver counts their memory under pids that we can't know.
            strayed = sum(mapped_bytes(holder) for holder in strays)
            reasons.append(f"{names}: the agent does not see the host's pids: a context is among other processes")
    return Part(
        part="other_processes",
        bytes=max(0, sum(foreign) - strayed),
        error_bytes=PAGE * len(foreign),
        count=len(foreign),
    )
