"""Which process, GPU or engine a number is of, as subjects of verdicts and in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.plain import plain
from agent.sources.device.state import GpuState
from agent.state import AgentState, MemberState, Subject, Tier
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


def units(state: AgentState) -> Iterator[GpuState]:
    """Yield the GPUs, and in place of one in MIG mode its instances."""
    for gpu in state.device.gpus if state.device else ():
        yield from gpu.instances or (gpu,)


def gpu_of(state: AgentState, uuid: str) -> GpuState | None:
    """Return the GPU or instance that torch calls ``uuid``; the only one of the node where it gives none."""
    found = list(units(state))
    name = bare(uuid)
    if not name:
        return found[0] if len(found) == 1 else None
    return next((gpu for gpu in found if name in {bare(each) for each in (gpu.uuid, *gpu.compute_instances)}), None)


def total_of(state: AgentState, gpu: str) -> int | None:
    """Return the memory of the GPU or instance labelled ``gpu`` in bytes, None where that is not known."""
    for whole in state.device.gpus if state.device else ():
        for each in whole.instances or (whole,):
            if each.gpu == gpu and each.memory is not None:
                return each.memory.total
    return None


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
