"""Tensors that take ever more of a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.signals.types import NodeSignals
from agent.state import AgentState
from tests.unit.timeline import GIB, UNIX, engine, gpu, member, state, times
from tests.unit.told import Told, allocator_signals, engine_signals, node, rate, slow

KIND = "allocator_growth"


def states(seconds: float = 200, **parts: Any) -> Iterator[AgentState]:
    values: dict[str, Any] = {"engines": (engine(members=(member(),)),), "gpus": [gpu(60 * GIB)]}
    for t in times(seconds):
        yield state(t, **values | parts)


def test_it_says_how_fast_and_how_long_it_will_do() -> None:
    found = Told(KIND, node(allocators=allocator_signals(slow=slow(0.01)))).last(states())
    assert found is not None
    assert (found.phase, found.tier) == ("confirmed", "warn")
    assert found.sentence == (
        "Tensors of engine m's worker 0 on GPU 0 grow by 819.2 MiB an hour, for 6 h 0 min now; 95% of what came "
        "stayed. 19.5 GiB of the device are free: enough for 24 h 22 min at this rate."
    )
    assert "empty_cache() frees none of it" in found.remedy
    assert found.evidence["ratio_per_hour"] == 0.01


def test_a_device_that_will_soon_be_full_pages() -> None:
    leak = node(allocators=allocator_signals(slow=slow(0.01)))
    short = Told(KIND, leak).last(states(gpus=[gpu(79 * GIB + GIB // 4)]))
    roomy = Told(KIND, leak).last(states(gpus=[gpu(78 * GIB)]))
    assert short is not None
    assert roomy is not None
    assert (short.tier, roomy.tier) == ("page", "warn")


def test_a_staircase_is_told_as_one() -> None:
    found = Told(KIND, node(allocators=allocator_signals(slow=slow(0.01, staircase=7)))).last(states())
    assert found is not None
    assert "in 7 steps that never came down" in found.sentence


@pytest.mark.parametrize("why", ["fast only", "plateau", "start", "too little", "swapped"])
def test_what_looks_like_it_and_is_not(why: str) -> None:
    row = allocator_signals(slow=slow(0.01))
    engines = (engine_signals(),)
    if why == "fast only":  # weights, warm-up, graph capture: fast, and over in minutes
        row = allocator_signals(growth=rate(0.2))
    elif why == "plateau":
        row = allocator_signals(slow=slow(0.01, leaks=False, later_per_hour=0.0))
    elif why == "start":
        engines = (engine_signals(settled=False),)
    elif why == "too little":
        row = allocator_signals()
    else:  # another model is being loaded: its engine is not there yet
        engines = ()
    signals = NodeSignals(engines=engines, allocators=(row,))
    assert Told(KIND, signals).last(states()) is None


def test_a_process_of_no_engine_gets_nobody_up() -> None:
    row = allocator_signals(engine="", process="train", role="torch", slow=slow(0.5))
    found = Told(KIND, node(allocators=row)).last(
        states(engines=(), processes=(member(role="torch", process="train"),))
    )
    assert found is not None
    assert (found.tier, found.subject.process) == ("warn", "train")


def test_its_life() -> None:
    def given(now: AgentState) -> NodeSignals:
        leaks = 10 <= now.at - UNIX < 300 or 700 <= now.at - UNIX < 710
        return node(allocators=allocator_signals(slow=slow(leaks=leaks)))

    assert Told(KIND, given).phases(states(1600)) == ["none", "suspect", "confirmed", "resolved", "none"]
    told = Told(KIND, given)
    phases = {now.at - UNIX: [each.phase for each in told.look(now)] for now in states(1400)}
    assert (phases[129], phases[130]) == (["suspect"], ["confirmed"])
    assert phases[1300] == ["confirmed"]
    assert phases[1309] == ["resolved"]
