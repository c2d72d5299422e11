"""Ranks of one engine that have unequal room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.signals.types import NodeSignals
from agent.state import AgentState, EngineState, MemberState
from agent.waterfall.state import Part, Waterfall
from engine_hooks.members import WorkerRow
from tests.unit.details import make_compaction, make_detail
from tests.unit.timeline import GIB, UNIX, engine, gpu, member, pool, state, times
from tests.unit.told import Told, engine_signals

KIND = "rank_imbalance"


def worker(rank: int, blocks: int | None = 1000, stage: int = 0) -> MemberState:
    row = WorkerRow(
        tensor_parallel_rank=rank,
        pipeline_parallel_rank=stage,
        device=f"cuda:{rank}",
        device_uuid=f"GPU-{rank}",
        kv_blocks=blocks,
    )
    return member(rank=rank, worker=row)


def cards(*used: int) -> list[Any]:
    return [gpu(size, gpu=str(n), uuid=f"GPU-{n}", index=n) for n, size in enumerate(used)]


def own(gpu: str, size: int) -> Waterfall:
    part = Part(part="weights", bytes=size, error_bytes=0, owner="m")
    return Waterfall(
        gpu=gpu, uuid=f"GPU-{gpu}", total_bytes=80 * GIB, parts=(part,), unattributed_bytes=0, error_bytes=0
    )


def states(*engines: EngineState, seconds: float = 200, **parts: Any) -> Iterator[AgentState]:
    values: dict[str, Any] = {"gpus": cards(72 * GIB, 72 * GIB)}
    for t in times(seconds):
        yield state(t, engines=engines, **values | parts)


def settled(*names: str) -> NodeSignals:
    return NodeSignals(engines=tuple(engine_signals(engine=name) for name in names or ("m",)))


def test_unequal_blocks_are_told_with_the_least() -> None:
    found = Told(KIND, settled()).last(states(engine(members=(worker(0), worker(1, 900)))))
    assert found is not None
    assert (found.phase, found.tier, found.subject.engine) == ("confirmed", "warn", "m")
    assert found.sentence == (
        "Rank 1 of engine m has 900 KV blocks, rank 0 has 1,000: 10% fewer. The least decides what the engine can hold."
    )
    assert "set once, at the start" in found.remedy


def test_unequal_memory_is_told_with_the_most() -> None:
    both = engine(members=(worker(0), worker(1)))
    found = Told(KIND, settled()).last(states(both, gpus=cards(72 * GIB, 60 * GIB)))
    assert found is not None
    assert "Rank 0 of engine m takes 12.0 GiB more of its GPU than rank 1 (72.0 GiB against 60.0 GiB)" in found.sentence
    assert found.evidence["difference_ratio"] == 0.15


def test_data_parallel_ranks_with_unequal_pools() -> None:
    small, large = engine(engine="m/0", pool=pool(capacity=800)), engine(engine="m/1", pool=pool(capacity=1000))
    told = Told(KIND, settled("m/0", "m/1"))
    for now in states(small, large):
        found = told.look(now)
    assert [each.subject.engine for each in found] == ["m/0"]
    assert "20% less" in found[0].sentence


def test_a_pool_that_was_made_smaller_on_purpose_is_no_imbalance() -> None:
    shrunk = make_detail(compaction=make_compaction(offline=200))
    small = engine(engine="m/0", pool=pool(capacity=800), detail=shrunk)
    large = engine(engine="m/1", pool=pool(capacity=1000))
    assert Told(KIND, settled("m/0", "m/1")).last(states(small, large)) is None


@pytest.mark.parametrize("why", ["equal", "few blocks", "stages", "neighbour", "start", "one rank", "others", "untold"])
def test_what_looks_like_it_and_is_not(why: str) -> None:
    engines: tuple[EngineState, ...] = (engine(members=(worker(0), worker(1))),)
    parts: dict[str, Any] = {}
    signals = settled()
    if why == "few blocks":
        engines = (engine(members=(worker(0), worker(1, 951))),)
    elif why == "stages":  # the first and the last stage of a pipeline have more to hold
        engines = (engine(members=(worker(0), worker(1, stage=1))),)
        parts["gpus"] = cards(72 * GIB, 60 * GIB)
    elif why == "neighbour":  # a small engine on the GPU of one rank: somebody's plan
        parts |= {"gpus": cards(72 * GIB, 60 * GIB), "waterfalls": (own("0", 58 * GIB), own("1", 58 * GIB))}
    elif why == "start":
        parts["gpus"] = cards(72 * GIB, 20 * GIB)
        signals = NodeSignals(engines=(engine_signals(settled=False),))
    elif why == "one rank":
        engines = (engine(members=(worker(0),)),)
        parts["gpus"] = cards(72 * GIB, 0)
    elif why == "others":  # two services are not ranks of one
        engines = (engine(pool=pool(capacity=1000)), engine(engine="n", engine_id="x", pool=pool(capacity=500)))
        signals = settled("m", "n")
    elif why == "untold":
        engines = (engine(members=(worker(0, None), worker(1, None))),)
    assert Told(KIND, signals).last(states(*engines, **parts)) is None


def test_its_life() -> None:
    def seen() -> Iterator[AgentState]:
        for t in times(600):
            unequal = 10 <= t < 200
            ranks = (worker(0), worker(1, 900 if unequal else 1000))
            # Silent for a while: what was found stays.
            yield state(t, engines=(engine(phase="silent" if 200 <= t < 400 else "live", members=ranks),))

    told = Told(KIND, settled())
    phases = {now.at - UNIX: [each.phase for each in told.look(now)] for now in seen()}
    assert (phases[129], phases[130]) == (["suspect"], ["confirmed"])
    assert phases[399] == ["confirmed"]
    assert phases[400] == ["resolved"]
