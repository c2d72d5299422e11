"""Who shares a GPU: others than ours, and whether by turns (time-slicing) or at once (MPS).

Told apart by the driver's lists. A process with a compute context that is none of ours is a neighbour: without MPS the
driver gives them turns, whatever has put them there (Kubernetes' time-slicing is not visible in any other way). Clients
of an MPS server are in a list of their own; where that can't be read, each worker says whether an MPS server's pipe was
there when it started. A MIG instance is a device of its own: its neighbours are those within it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agent.sources.device.state import GpuProcess, GpuState
from agent.state import AgentState
from agent.waterfall.owners import Holder, Place, Process, ours

FOREIGN_BYTES = 64 << 20  # less is the driver's own, or a tool that only looks
MPS, TURNS = "mps", "time_slicing"


class Sharing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One GPU or MIG instance. ``owners``: ours that hold memory there; ``mps``: through an MPS server, None where that
    is not known. ``others``: processes that are not ours, None where the driver does not tell which are there.
    """

    gpu: str
    owners: tuple[str, ...]
    others: int | None
    mps: bool | None

    @property
    def through(self) -> str:
        """How they share it."""
        return MPS if self.mps else TURNS

    @property
    def shared(self) -> bool:
        """Whether others use it, or may: who else the clients of an MPS server are, it alone knows."""
        return bool(self.others) or (bool(self.mps) and self.others is None)

    def __str__(self) -> str:
        """Say who uses it beside ours; empty where nobody is known to."""
        how = "through MPS, at the same time" if self.mps else "taking turns (time-slicing)"
        if self.others is None:
            return "served by MPS, and who else uses it can't be seen" if self.mps else ""
        if not self.others:
            return ""
        whom = "a process that is" if self.others == 1 else f"{self.others} processes that are"
        return f"shared with {whom} not of kvtide's engines, {how}"


def sharings(state: AgentState) -> Iterator[Sharing]:
    """Yield what is known of each GPU and MIG instance that works; of a GPU in MIG mode only its instances."""
    known = ours(state.engines, state.processes)
    host_pids = state.host.host_pids if state.host is not None else None
    for card in state.device.gpus if state.device is not None else ():
        for unit in (card.instances or (card,)) if card.up else ():
            if unit.up:
                yield _of(unit, card.uuid, known, host_pids=host_pids)


def _of(unit: GpuState, card: str | None, known: tuple[Process, ...], *, host_pids: bool | None) -> Sharing:
    here = tuple(Place(unit, card).holders(known))
    return Sharing(
        gpu=unit.gpu,
        owners=tuple(dict.fromkeys(holder.owner for holder in here)),
        others=_others(unit, here, host_pids=host_pids),
        mps=_mps(unit, here),
    )


def _others(unit: GpuState, here: tuple[Holder, ...], *, host_pids: bool | None) -> int | None:
    if unit.processes is None:
        return None
    pids = {row.pid for row in unit.processes.rows}
    foreign = {row.pid for row in unit.processes.rows if _computes(row)} - {holder.pid for holder in here}
    # Where the agent does not see the host's pids, ours are among them under others.
    strays = 0 if host_pids else sum(holder.pid not in pids for holder in here)
    return max(0, len(foreign) - strays)


def _computes(row: GpuProcess) -> bool:
    """Whether it has more than a context; what the driver does not tell of it may be anything."""
    return row.kind != "G" and (row.used_bytes is None or row.used_bytes > FOREIGN_BYTES)


def _mps(unit: GpuState, here: tuple[Holder, ...]) -> bool | None:
    if unit.processes is not None and any("M" in row.kind for row in unit.processes.rows):
        return True
    if unit.processes is not None and not {"processes", "mps_processes"} & {*unit.unavailable, *unit.unsupported}:
        return False
    told = [work.row.mps for holder in here for work in holder.work if work.row.mps is not None]
    return any(told) if told else None
