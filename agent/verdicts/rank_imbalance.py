"""rank_imbalance: ranks of one engine have unequal room, and the least decides for all.

Tensor-parallel ranks hold equal shares: one whose KV cache, own memory or GPU differs wastes what the others have
more. Pipeline stages are not alike, so memory is compared within a stage; the number of KV blocks in all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.retained import count_of
from agent.state import AgentState, EngineState, MemberState
from agent.subject import Subject
from agent.units import human_bytes
from agent.verdicts.base import Finding, View
from agent.verdicts.who import gpu_of

UNEQUAL_BLOCKS = 0.05  # of the most
UNEQUAL_BYTES = 0.05  # of the device, and of the largest pool
REMEDY = (
    "See what else is on the fullest GPU (`kvtide status --waterfall`) and move it, then restart the engine: the "
    "pool's size is set once, at the start, by the rank with the least room."
)
REMEDY_REPLICAS = "Restart the smaller one on a GPU that is as free as the others, or send it less: it fills up first."


class RankImbalance:
    """Fires on ranks of one engine, and on data-parallel ranks of one service, that differ by a stated share."""

    kind = "rank_imbalance"
    confirm_seconds = 120.0
    clear_seconds = 120.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the engines whose ranks are unequal."""
        ready = {each.engine for each in view.signals.engines if each.settled}
        engines = [each for each in view.state.engines if each.phase == "live" and each.engine in ready]
        services: dict[str, dict[str, int]] = defaultdict(dict)
        for engine in engines:
            if engine.pool is not None:
                services[engine.engine_id][engine.engine] = engine.pool.capacity + _offline(engine)
        for engine in engines:
            finding = _blocks(engine) or _memory(engine, view.state) or _replicas(engine, services[engine.engine_id])
            if finding is not None:
                yield Subject(scope="engine", engine=engine.engine), finding


def _offline(engine: EngineState) -> int:
    """Blocks that were taken out of the pool: that it is smaller by these is meant, and no restart is called for."""
    row = engine.detail.compaction if engine.detail is not None else None
    return row.offline if row is not None else 0


class _Rank(NamedTuple):
    rank: int
    size: float


def _workers(engine: EngineState) -> list[MemberState]:
    return [member for member in engine.members if member.up and member.worker is not None]


def _ends(ranks: Iterable[_Rank]) -> tuple[_Rank, _Rank] | None:
    found = sorted(ranks, key=lambda each: each.size)
    return (found[0], found[-1]) if len(found) > 1 else None


def _blocks(engine: EngineState) -> Finding | None:
    ranks = [
        _Rank(member.rank, member.worker.kv_blocks)
        for member in _workers(engine)
        if member.worker is not None and member.worker.kv_blocks
    ]
    ends = _ends(ranks)
    if ends is None or ends[1].size - ends[0].size <= UNEQUAL_BLOCKS * ends[1].size:
        return None
    least, most = ends
    share = 1 - least.size / most.size
    return Finding(
        f"Rank {least.rank} of engine {engine.engine} has {least.size:,.0f} KV blocks, rank {most.rank} has "
        f"{most.size:,.0f}: {share:.0%} fewer. The least decides what the engine can hold.",
        REMEDY,
        {"least_blocks": least.size, "most_blocks": most.size, "difference_ratio": share},
        tier="warn",
    )


def _memory(engine: EngineState, state: AgentState) -> Finding | None:
    workers = _workers(engine)
    if len(workers) < 2:
        return None
    stages: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for member in workers:
        gpu = gpu_of(state, member.worker.device_uuid) if member.worker and member.worker.device_uuid else None
        if gpu is not None and gpu.memory is not None and member.worker is not None:
            size = _own(engine.engine, gpu.gpu, gpu.memory.used, state)
            stages[member.worker.pipeline_parallel_rank].append((member.rank, size, gpu.memory.total))
    for ranks in stages.values():
        ends = _ends(_Rank(rank, size) for rank, size, _ in ranks)
        total = min(total for *_, total in ranks)
        if ends is None or ends[1].size - ends[0].size <= UNEQUAL_BYTES * total:
            continue
        least, most = ends
        apart = most.size - least.size
        return Finding(
            f"Rank {most.rank} of engine {engine.engine} takes {human_bytes(apart)} more of its GPU than rank "
            f"{least.rank} ({human_bytes(most.size)} against {human_bytes(least.size)}). The fullest decides what all "
            "of them can hold.",
            REMEDY,
            {"most_bytes": most.size, "least_bytes": least.size, "difference_ratio": apart / total},
            tier="warn",
        )
    return None


def _own(engine: str, gpu: str, used: int, state: AgentState) -> int:
    """What an engine itself holds of a GPU; all that is used there where the waterfall doesn't tell the two apart.

    That another engine lives on the GPU of one rank is somebody's plan.
    """
    for waterfall in state.waterfalls:
        if waterfall.gpu == gpu:
            own = sum(part.bytes for part in waterfall.parts if part.owner == engine)
            return own or used
    return used


def _replicas(engine: EngineState, sizes: Mapping[str, int]) -> Finding | None:
    """The data-parallel ranks of one service have pools of their own (``sizes``); told of the smallest."""
    own = sizes.get(engine.engine)
    if own is None or len(sizes) < 2:
        return None
    most = max(sizes.values())
    if own != min(sizes.values()) or most - own <= UNEQUAL_BYTES * most:
        return None
    share = 1 - own / most
    return Finding(
        f"Engine {engine.engine} has a pool of {count_of(own, 'block')}, another data-parallel rank of the same "
        f"service one of {most:,}: {share:.0%} less, at an equal share of the requests.",
        REMEDY_REPLICAS,
        {"least_blocks": own, "most_blocks": most, "difference_ratio": share},
        tier="warn",
    )
