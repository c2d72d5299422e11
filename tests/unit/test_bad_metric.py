"""Numbers that can't be, and numbers that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.sources.device.state import GpuMemory, GpuState
from agent.state import AgentState, Verdict
from tests.unit.timeline import GIB, MIB, UNIX, engine, gpu, page, pool, state, times
from tests.unit.told import Told

KIND = "bad_metric"
SAID = "The engine says kv_cache_usage_perc = -0.3875, which can't be; not used."
BAD = {
    "usage_ratio": None,
    "held_blocks": None,
    "bad_values": {"negative": 3},
    "impossible": SAID,
}


def verdict(seconds: float = 60, **parts: Any) -> Verdict | None:
    return Told(KIND).last(state(t, **parts) for t in times(seconds))


def test_a_value_that_stays_impossible_is_told() -> None:
    found = verdict(pages=[page(**BAD)])
    assert found is not None
    assert (found.phase, found.tier, found.subject.engine) == ("confirmed", "warn", "s")
    assert found.sentence == SAID
    assert "given back twice" in found.remedy
    assert found.evidence == {"bad_negative": 3}


def test_where_the_page_does_not_say_which_it_was() -> None:
    found = verdict(pages=[page(**BAD | {"impossible": ""})])
    assert found is not None
    assert found.tier == "warn"
    assert "negative" in found.sentence


@pytest.mark.parametrize("use", [-0.3875, 1.4])
def test_a_recording_of_another_tool_may_have_it(use: float) -> None:
    found = verdict(pages=[page(usage_ratio=use, held_blocks=None)])
    assert found is not None
    assert f"{use:.4g} of its KV cache" in found.sentence


def test_one_sample_that_can_not_be_is_none() -> None:
    told = Told(KIND)
    for t in times(300):
        odd = page(**BAD) if t == 100 else page(bad_values={"negative": 1} if t > 100 else {})
        assert all(each.phase == "suspect" for each in told.look(state(t, pages=[odd])))


def test_a_metric_that_was_renamed_or_has_vanished_is_only_noted() -> None:
    found = verdict(pages=[page(usage_ratio=None, held_blocks=None)])
    assert found is not None
    assert found.tier == "note"
    assert "does not say how much of its KV cache is in use" in found.sentence
    assert verdict(pages=[page(usage_ratio=None, held_blocks=None, phase="down")]) is None


@pytest.mark.parametrize("changes", [{"held": 1001, "empty": 0}, {"held": -4, "empty": 904}])
def test_a_pool_that_holds_more_than_it_has(changes: dict[str, int]) -> None:
    found = verdict(engines=(engine(pool=pool(**changes)),))
    assert found is not None
    assert f"{changes['held']:,} held KV blocks in a pool of 1,000" in found.sentence
    assert verdict(engines=(engine(pool=pool(held=1000, cached_idle=0)),)) is None


def test_a_gpu_that_has_more_than_there_is() -> None:
    much = gpu(0, memory=GpuMemory(total=80 * GIB, used=90 * GIB, free=0, reserved=0))
    found = verdict(gpus=[much])
    assert found is not None
    assert (found.tier, found.subject.gpu) == ("warn", "0")


@pytest.mark.parametrize("why", ["reserved apart", "reserved not told", "unified", "instances"])
def test_sums_that_do_not_close_and_are_well(why: str) -> None:
    one = gpu(0, memory=GpuMemory(total=81920 * MIB, used=741 * MIB, free=80328 * MIB, reserved=851 * MIB))
    if why == "reserved not told":
        one = gpu(0, memory=GpuMemory(total=81920 * MIB, used=741 * MIB, free=80328 * MIB, reserved=None))
    elif why == "unified":
        memory = GpuMemory(total=100 * GIB, used=90 * GIB, free=30 * GIB, reserved=None)
        one = gpu(0, unified=True, memory=memory)
    elif why == "instances":
        part = GpuState(gpu="0/1", uuid="MIG-1", name="x", index=0, parent="0", unavailable={"memory": "N/A"})
        one = gpu(0, mig=True, instances=(part,))
    assert verdict(gpus=[one]) is None


def test_its_life_while_the_page_is_away() -> None:
    def seen() -> Iterator[AgentState]:
        for t in times(500):
            bad = page(**BAD) if 10 <= t < 100 else page(phase="down" if 100 <= t < 300 else "up")
            yield state(t, pages=[bad])

    told = Told(KIND)
    phases = {now.at - UNIX: [each.phase for each in told.look(now)] for now in seen()}
    assert (phases[39], phases[40], phases[299], phases[300]) == (
        ["suspect"],
        ["confirmed"],
        ["confirmed"],
        ["resolved"],
    )
