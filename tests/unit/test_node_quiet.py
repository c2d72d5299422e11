"""What looks like a fault of a GPU, an allocator or a host and is none, and its twin that is one: by real signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agent.judge import Judge
from agent.policy.types import DEFAULT, Policy
from agent.sources.device.state import GpuMemory, GpuState
from agent.state import AgentState, EngineState, Verdict
from agent.waterfall.build import waterfalls
from engine_hooks.allocator import AllocatorRow, SegmentsRow
from tests.unit.allocators import make_segments, make_walk
from tests.unit.details import make_detail
from tests.unit.timeline import UNIX, cgroup, gpu, host, pool, process, state, times
from tests.unit.waterfalls import GIB, MIB, Rank, Torch, Truth, allocator_of, engine_of, sleeping, worker_of

MINE = {
    "allocator_fragmentation",
    "allocator_growth",
    "bad_metric",
    "dead_process_memory",
    "device_growth",
    "gpu_lost",
    "host_growth",
    "oom",
    "over_budget",
    "rank_imbalance",
    "sensor_stale",
}
HOUR = 3600.0
RANK = Rank(weights=15 * GIB, kv=50 * GIB)
FULL = Truth(ranks={101: RANK}, free=8 * GIB)


def judged(states: Iterator[AgentState], policy: Policy = DEFAULT) -> dict[str, Verdict]:
    """The verdicts of these kinds that were confirmed and that somebody is told of."""
    judge, found = Judge(policy), {}
    for each in states:
        for verdict in judge.look(each).verdicts:
            if verdict.kind in MINE and verdict.phase == "confirmed" and verdict.tier != "note":
                found[verdict.kind] = verdict
    return found


def sound(engine: EngineState, /, **changes: Any) -> EngineState:
    return msgspec.structs.replace(engine, pool=pool(), detail=make_detail(pools=(), leaks=()), hooks=None, **changes)


def node(t: float, truth: Truth, hooked: bool = True, **parts: Any) -> AgentState:
    """The node as its sources would tell of ``truth``; without ``hooked`` nobody reports to us."""
    engines = parts.pop("engines", None)
    if engines is None:
        engines = tuple(sound(each) for each in truth.engines()) if hooked else ()
    processes = truth.processes() if hooked else ()
    gpus = parts.pop("gpus", [truth.gpu()])
    falls = waterfalls(gpus or (), engines, processes, host_pids=True)
    return state(t, engines=engines, processes=processes, gpus=gpus, waterfalls=falls, **parts)


def test_a_preallocated_card_that_serves() -> None:
    assert judged(node(t, FULL) for t in times(HOUR, 5)) == {}


def loading(t: float) -> tuple[Truth, bool]:
    """Weights for five minutes, then the KV cache, then graphs; hooks report when all of it is there."""
    if t < 300:
        return Truth(ranks={101: Rank(weights=int(15 * GIB * t / 300), kv=0)}, free=8 * GIB), False
    if t < 420:
        steps = int((t - 300) / 10)
        return replace(FULL, ranks={101: replace(RANK, torch=Torch(graphs=200 * MIB * steps))}), t >= 360
    return replace(FULL, ranks={101: replace(RANK, torch=Torch(graphs=2400 * MIB))}), True


def test_loading_warm_up_and_graph_capture() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(HOUR / 2, 2):
            truth, hooked = loading(t)
            there = host(processes=(process(int(4 * GIB + min(t, 300) * 40 * MIB), started_at=UNIX),))
            yield node(t, truth, hooked, host=there)

    assert judged(states()) == {}


@pytest.mark.parametrize("change", ["restart", "swap"])
def test_an_engine_that_restarts_or_makes_room_for_another(change: str) -> None:
    def states() -> Iterator[AgentState]:
        for t in times(HOUR, 2):
            if t < HOUR / 3:
                yield node(t, FULL)
            elif t < HOUR / 3 + 15:
                yield node(t, Truth(ranks={}, free=76 * GIB))
            else:
                truth, hooked = loading(t - HOUR / 3 - 15)
                engines = tuple(
                    sound(each, instance="next", engine="next" if change == "swap" else each.engine)
                    for each in truth.engines()
                )
                yield node(t, truth, engines=engines if hooked else ())

    assert judged(states()) == {}


def test_sleep_and_wake() -> None:
    awake = Truth(ranks={101: replace(RANK, sleeps=True)}, free=8 * GIB)
    asleep = replace(sleeping(awake), free=8 * GIB + RANK.loaded + RANK.kv)

    def states() -> Iterator[AgentState]:
        for t in times(HOUR, 5):
            yield node(t, asleep if int(t / 600) % 2 else awake)

    assert judged(states()) == {}


def test_a_training_job_on_the_same_gpu_at_constant_use() -> None:
    trainer = Torch(active=20 * GIB, inactive=3 * GIB, graphs=0, graphs_inactive=0)
    shared = Truth(ranks={101: Rank(weights=15 * GIB, kv=30 * GIB)}, trainers={77: trainer}, free=3 * GIB)
    foreign = Truth(ranks={101: Rank(weights=15 * GIB, kv=30 * GIB)}, foreign={77: 24 * GIB}, free=3 * GIB)
    for truth in (shared, foreign):
        assert judged(node(t, truth) for t in times(HOUR, 5)) == {}


def test_an_agent_that_restarts_and_a_driver_that_hangs_once() -> None:
    hung = {"memory": "hangs in the driver: no answer within 2 s"}

    def states() -> Iterator[AgentState]:
        for t in times(HOUR, 2):
            one = FULL.gpu(memory=None, unavailable=hung) if 600 <= t < 604 else FULL.gpu()
            away = 1200 <= t < 1215
            if not 1800 <= t < 1830:  # the agent's restart: nothing is recorded
                yield node(t, FULL, gpus=None if away else [one])

    assert judged(states()) == {}


def test_instances_of_a_mig_gpu() -> None:
    def part(number: int, used: int, **changes: Any) -> GpuState:
        memory = GpuMemory(total=40 * GIB, used=used, free=39 * GIB - used, reserved=GIB)
        return gpu(0, gpu=f"0/{number}", uuid=f"MIG-{number}", parent="0", memory=memory, **changes)

    def states() -> Iterator[AgentState]:
        for t in times(HOUR, 5):
            blind = GpuState(gpu="0/3", uuid="MIG-3", name="1g", index=0, parent="0", unavailable={"memory": "N/A"})
            yield state(t, gpus=[gpu(70 * GIB, mig=True, instances=(part(1, 36 * GIB), part(2, 35 * GIB), blind))])

    assert judged(states()) == {}


def test_page_cache_that_fills() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(2 * HOUR, 5):
            files = int(min(20 * GIB, 8 * MIB * t))
            group = cgroup(
                5 * GIB + files, 32 * GIB, parts={"anon": 4 * GIB, "file": files + 100 * MIB, "shmem": 100 * MIB}
            )
            yield node(t, FULL, host=host(processes=(process(5 * GIB),), cgroups=(group,)))

    assert judged(states()) == {}


def test_a_busy_allocator_with_free_segments() -> None:
    """Between steps torch keeps gigabytes in many segments that are free as a whole: 90 % fragmented, and well."""

    def states() -> Iterator[AgentState]:
        for t in times(HOUR, 5):
            free = int((2 + math.sin(t / 30)) * GIB)
            yield node(t, FULL, engines=(walked(FULL, free, free // 10, whole=free - 100 * MIB),))

    assert judged(states()) == {}


def walked(truth: Truth, free: int, largest: int, whole: int = 0, **counts: Any) -> EngineState:
    """Engine 101 of ``truth`` with a walk that finds so much free."""
    (rank,) = truth.ranks.values()
    row = allocator_of(rank.torch, rank)
    assert row.walk is not None
    found: SegmentsRow = make_segments(
        reserved_bytes=row.devices[0].reserved_bytes,
        active_bytes=row.devices[0].active_bytes,
        free_bytes=free,
        largest_free_bytes=largest,
        whole_free_bytes=whole,
        private=row.walk.devices[0].private,
    )
    device = msgspec.structs.replace(row.devices[0], **counts)
    told: AllocatorRow = msgspec.structs.replace(row, walk=make_walk(devices=(found,)), devices=(device,))
    return sound(engine_of("101", worker_of(101, rank, told)))


# -- the same nodes with a fault -----------------------------------------------------------------------------


def test_pieces_and_retries_are_told() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(1200, 2):
            retries = int(max(0.0, t - 600) / 10)
            yield node(t, FULL, engines=(walked(FULL, 4 * GIB, 400 * MIB, retries_total=retries),))

    found = judged(states())
    assert set(found) >= {"allocator_fragmentation"}
    assert found["allocator_fragmentation"].tier == "page"
    assert "90% fragmented" in found["allocator_fragmentation"].sentence


def grows(make: Callable[[float], Truth], hours: float) -> Iterator[AgentState]:
    for t in times(hours * HOUR, 30):
        yield node(t, make(t))


def test_a_library_a_neighbour_and_tensors_that_leak_are_told_apart() -> None:
    def context(t: float) -> Truth:
        more = int(400 * MIB * t / HOUR)
        return replace(FULL, ranks={101: replace(RANK, torch=Torch(context=GIB + more))}, free=8 * GIB - more)

    def foreign(t: float) -> Truth:
        more = int(400 * MIB * t / HOUR)
        return replace(FULL, foreign={5: GIB + more}, free=7 * GIB - more)

    def tensors(t: float) -> Truth:
        more = int(400 * MIB * t / HOUR)
        return replace(FULL, ranks={101: replace(RANK, torch=Torch(active=GIB + more))}, free=7 * GIB - more)

    library, neighbour, leak = (judged(grows(make, 7)) for make in (context, foreign, tensors))
    assert set(library) == {"device_growth"}
    assert "contexts and libraries (NCCL, CUDA) of engine 101" in library["device_growth"].sentence
    assert set(neighbour) == {"device_growth"}
    assert neighbour["device_growth"].remedy.startswith("Another process takes it")
    assert set(leak) == {"allocator_growth"}
    assert leak["allocator_growth"].subject.process == "worker/1"


def test_a_neighbour_that_fills_the_last_of_a_gpu_pages() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(1400, 2):
            more = int(min(max(0.0, t - 900) * 25 * MIB, 8 * GIB))
            yield node(t, replace(FULL, foreign={5: GIB + more}, free=9 * GIB - more))

    found = judged(states())
    assert found["device_growth"].tier == "page"
    assert found["device_growth"].since < UNIX + 1200
