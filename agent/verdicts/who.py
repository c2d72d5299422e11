"""Which process, GPU or engine a number is of, as subjects of verdicts and in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from agent.oom.log import Failure
from agent.plain import plain
from agent.signals.gpus import units_of
from agent.signals.types import AllocatorSignals
from agent.sources.device.state import GpuMemory, GpuState
from agent.state import AgentState, MemberState, Tier
from agent.subject import Subject
from agent.verdicts.base import Finding, View
from agent.waterfall.owners import bare

_RANK: dict[Tier, int] = {"note": 0, "warn": 1, "page": 2}
_MOST = 60  # characters of a name from outside


def process_subject(engine: str, role: str, rank: int, process: str = "") -> Subject:
    """Return the subject of a process: an engine's by role and rank, another by its name."""
    return Subject(scope="process", engine=engine, process=f"{role}/{rank}" if engine else process)


def process_words(engine: str, role: str, rank: int, process: str = "") -> str:
    """Return what a person calls a process: ``engine m's worker 1``, ``process train``."""
    if engine:
        return f"engine {plain(engine, _MOST)}'s {plain(role, _MOST)} {rank}"
    return f"process {plain(process, _MOST)}"


def member_of(state: AgentState, engine: str, role: str, rank: int, process: str = "") -> MemberState | None:
    """Return the process that reports under these names, None where it does not report now."""
    if not engine:
        return next((member for member in state.processes if member.process == process and member.up), None)
    return next(
        (
            member
            for each in state.engines
            if each.engine == engine
            for member in each.members
            if member.up and member.role == role and member.rank == rank
        ),
        None,
    )


def gpu_of(state: AgentState, uuid: str) -> GpuState | None:
    """Return the GPU or instance that torch calls ``uuid``; the only one of the node where it gives none."""
    found = list(units_of(state, lost=True))
    name = bare(uuid)
    if not name:
        return found[0] if len(found) == 1 else None
    return next((gpu for gpu in found if name in {bare(each) for each in (gpu.uuid, *gpu.compute_instances)}), None)


def memory_of(state: AgentState, gpu: str) -> GpuMemory | None:
    """Return the memory of the GPU or instance labelled ``gpu``, None where that is not known."""
    return next((each.memory for each in units_of(state, lost=True) if each.gpu == gpu), None)


def total_of(state: AgentState, gpu: str) -> int | None:
    """Return how large it is in bytes, None where that is not known."""
    memory = memory_of(state, gpu)
    return memory.total if memory is not None else None


def free_of(state: AgentState, gpu: str) -> int | None:
    """Return how much of it is free in bytes, None where that is not known."""
    memory = memory_of(state, gpu)
    return memory.free if memory is not None else None


def failed_on(state: AgentState, failure: Failure) -> str | None:
    """Return the label of the GPU on which memory was refused; None where nobody can tell.

    The process may be gone, and with it the name of its device: of several GPUs it could be any then.
    """
    member = member_of(state, failure.engine, failure.role, failure.rank, failure.process)
    told = member.allocator.row if member is not None and member.allocator is not None else None
    for row in told.devices if told is not None else ():
        if row.device == failure.event.device and (there := gpu_of(state, row.uuid)) is not None:
            return there.gpu
    found = list(units_of(state, lost=True))
    return found[0].gpu if len(found) == 1 else None


def allocators(
    view: View, judge: Callable[[AllocatorSignals, View], Finding | None]
) -> Iterator[tuple[Subject, Finding]]:
    """Yield what ``judge`` finds in torch's allocators: each process once, by its worst device."""
    found = ((row, judge(row, view)) for row in view.signals.allocators)
    yield from worst(
        (process_subject(row.engine, row.role, row.rank, row.process), finding)
        for row, finding in found
        if finding is not None
    )


def settled(view: View, engine: str) -> bool:
    """Return whether an engine is past its start: loading, warm-up, graph capture. A process of none always is."""
    if not engine:
        return True
    return any(each.settled for each in view.signals.engines if each.engine == engine)


def serves(view: View, gpu: str) -> bool:
    """Return whether an engine past its start holds memory of this GPU: there is something to protect.

    Where nothing tells who is on it, any engine of the node counts.
    """
    ready = {each.engine for each in view.signals.engines if each.settled}
    owners = {part.owner for fall in view.state.waterfalls if fall.gpu == gpu for part in fall.parts if part.owner}
    return bool(ready & owners) if owners else bool(ready)


def worse(one: Tier, other: Tier) -> Tier:
    """Return the tier that gets more people up."""
    return one if _RANK[one] >= _RANK[other] else other


def at_most(tier: Tier, most: Tier) -> Tier:
    """Return ``tier``, but nothing above ``most``."""
    return tier if _RANK[tier] <= _RANK[most] else most


def worst(found: Iterable[tuple[Subject, Finding]]) -> Iterator[tuple[Subject, Finding]]:
    """Yield each subject once, with the finding of the highest tier; the first of those."""
    kept: dict[Subject, Finding] = {}
    for subject, finding in found:
        known = kept.get(subject)
        if known is None or _RANK[finding.tier] > _RANK[known.tier]:
            kept[subject] = finding
    yield from kept.items()
