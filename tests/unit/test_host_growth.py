"""Host memory of engines that grows until the kernel ends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.policy.types import TEXTBOOK
from agent.signals.types import Forecast, HostSignals, NodeSignals
from agent.sources.host.state import PressureState
from agent.state import AgentState
from tests.unit.timeline import GIB, MIB, UNIX, cgroup, engine, gpu, host, member, process, state, times
from tests.unit.told import Told, allocator_signals, gpu_signals, host_signals, node, rate, slow

KIND = "host_growth"
SOON = Forecast(seconds=1200.0, low=1000.0, high=1500.0, condition="")


def states(seconds: float = 100, **parts: Any) -> Iterator[AgentState]:
    values: dict[str, Any] = {"engines": (engine(),), "host": host(processes=(process(8 * GIB),))}
    for t in times(seconds):
        yield state(t, **values | parts)


def group(**changes: Any) -> HostSignals:
    values = {"what": "cgroup", "limit_bytes": 16 * GIB, "limit_ratio": 0.5}
    return host_signals(**values | changes)


def test_it_says_how_fast_and_when_the_limit_is_reached() -> None:
    found = Told(KIND, node(host=group(growth=rate(0.02), limit_seconds=SOON))).last(states())
    assert found is not None
    assert (found.phase, found.tier, str(found.subject)) == ("confirmed", "page", "m core/0")
    assert found.sentence == (
        "The memory group of engine m's core 0, 8.0 GiB now, grows by 163.8 MiB a minute (2.0%), over 10 min. 50% of "
        "its limit of 16.0 GiB are used; at this rate it is reached in 20 min."
    )
    assert found.remedy.startswith("Raise the memory limit")
    assert "free none of it" in found.remedy


@pytest.mark.parametrize(("per_minute", "tier"), [(0.0099, None), (0.0101, "warn"), (0.0299, "warn"), (0.0301, "page")])
def test_by_its_rate(per_minute: float, tier: str | None) -> None:
    found = Told(KIND, node(host=host_signals(growth=rate(per_minute)))).last(states())
    assert (found and found.tier) == tier


@pytest.mark.parametrize(
    ("per_minute", "ends_in", "tier"),
    [(0.02, 86_399.0, "warn"), (0.02, 86_400.0, None), (0.05, 86_399.0, "page"), (0.05, 200_000.0, None)],
)
def test_what_ends_in_a_day_or_more_is_left_to_the_slow_estimate(
    per_minute: float, ends_in: float, tier: str | None
) -> None:
    end = Forecast(seconds=ends_in, low=0.9 * ends_in, high=None, condition="")
    heap = node(host=host_signals(growth=rate(per_minute), limit_seconds=end))
    found = Told(KIND, heap).last(states(1000))
    assert (found and found.tier) == tier
    assert Told(KIND, heap, TEXTBOOK).last(states()) is not None, "the textbook judges the rate alone"


@pytest.mark.parametrize(("ends_in", "needed"), [(21_599.0, 60), (21_600.0, 900)])
def test_what_ends_in_hours_must_go_on_for_longer(ends_in: float, needed: int) -> None:
    """Teeth of a heap of which samples 40 s apart see another part each: ten minutes up, again and again."""
    end = Forecast(seconds=ends_in, low=0.9 * ends_in, high=None, condition="")
    told = Told(KIND, node(host=host_signals(growth=rate(0.012), limit_seconds=end)))
    phases = [told.look(now)[0].phase for now in states(needed + 10)]
    assert phases.index("confirmed") == needed


def test_of_a_process_and_its_group_the_one_that_ends_sooner_is_told() -> None:
    ends = [Forecast(seconds=each, low=0.9 * each, high=None, condition="") for each in (80_000.0, 7200.0)]
    both = (
        host_signals(growth=rate(0.02), limit_seconds=ends[0]),
        group(growth=rate(0.02), limit_seconds=ends[1]),
    )
    found = Told(KIND, node(host=both)).last(states())
    assert found is not None
    assert (found.phase, found.evidence["limit_seconds"]) == ("confirmed", 7200.0)


@pytest.mark.parametrize(("seconds", "fires"), [(500.0, False), (520.0, True)])
def test_a_rate_is_of_most_of_the_window(seconds: float, fires: bool) -> None:
    found = Told(KIND, node(host=host_signals(growth=rate(0.05, seconds=seconds)))).last(states())
    assert (found is not None) == fires


def test_a_slow_leak_and_a_staircase_are_told_and_get_nobody_up() -> None:
    found = Told(KIND, node(host=host_signals(slow=slow(0.02, staircase=6)))).last(states())
    assert found is not None
    assert (found.phase, found.tier) == ("confirmed", "warn")
    assert "grows by 163.8 MiB an hour, for 6 h 0 min now, in 6 steps that never came down" in found.sentence
    assert found.remedy.startswith("Find what grows")


@pytest.mark.parametrize(("steps", "fires"), [(3, False), (4, True)])
def test_a_staircase_that_has_no_slope_is_a_leak(steps: int, fires: bool) -> None:
    stairs = slow(0.05, leaks=False, staircase=steps)
    for kind, parts in (
        (KIND, {"host": host_signals(slow=stairs)}),
        ("allocator_growth", {"allocators": allocator_signals(slow=stairs)}),
        ("device_growth", {"gpus": gpu_signals(other_slow=stairs)}),
    ):
        here = states(200, engines=(engine(members=(member(),)),), gpus=[gpu(40 * GIB)])
        found = Told(kind, node(**parts)).last(here)
        assert (found is not None) == fires, kind
        if found is not None:
            assert "in 4 steps that never came down" in found.sentence


def test_what_a_process_does_is_told_once_and_as_that_process() -> None:
    there = host(processes=(process(8 * GIB), process(4 * GIB, role="worker")))
    rows = (
        host_signals(role="worker", bytes=4 * GIB, slow=slow(0.05)),
        group(bytes=12 * GIB, slow=slow(0.018)),
    )
    told = Told(KIND, node(host=rows))
    found = [told.look(now) for now in states(host=there)][-1]
    assert [str(each.subject) for each in found] == ["m worker/0"]


def test_tensors_that_grow_are_told_by_the_allocator_alone() -> None:
    """Memory of a device that is the host's too: torch says whose it is."""
    grows = host_signals(role="worker", slow=slow(0.05))
    same, less = (allocator_signals(slow=slow(ratio)) for ratio in (0.006, 0.001))
    cards = [gpu(40 * GIB)]
    here = {"engines": (engine(members=(member(),)),), "gpus": cards}
    assert Told(KIND, node(host=grows, allocators=same)).last(states(**here)) is None
    assert Told("allocator_growth", node(host=grows, allocators=same)).last(states(200, **here)) is not None
    assert Told(KIND, node(host=grows, allocators=less)).last(states(**here)) is not None, "most of it is not torch's"


def test_standing_still_at_the_limit_is_told() -> None:
    pressure = PressureState(some_ratio=0.9, full_ratio=0.6, some_seconds=100.0, full_seconds=60.0)
    full = host(cgroups=(cgroup(15 * GIB, 16 * GIB, pressure=pressure),))
    found = Told(KIND).last(states(host=full))
    assert found is not None
    assert "stood still for memory 60% of the last 10 s: their group holds 15.0 GiB of 16.0 GiB" in found.sentence
    roomy = host(cgroups=(cgroup(8 * GIB, 16 * GIB, pressure=pressure),))
    assert Told(KIND).last(states(host=roomy)) is None


@pytest.mark.parametrize("why", ["start", "page cache", "short", "unsure", "little", "plateau", "far", "rest"])
def test_what_looks_like_it_and_is_not(why: str) -> None:
    row, there = host_signals(growth=rate(0.05)), host(processes=(process(8 * GIB),))
    if why == "start":  # loading weights: fast, and over soon
        there = host(processes=(process(8 * GIB, started_at=UNIX - 600),))
    elif why == "page cache":  # files are read; the kernel takes that back
        row = group(growth=rate(0.05), limit_seconds=SOON)
        there = host(cgroups=(cgroup(12 * GIB, 16 * GIB, parts={"anon": 3 * GIB, "file": 9 * GIB, "shmem": GIB}),))
    elif why == "short":
        row = host_signals(growth=rate(0.05, seconds=240.0))
    elif why == "unsure":
        row = host_signals(growth=rate(0.05, low=-0.01))
    elif why == "little":  # an API server of 300 MiB that fills its caches
        row = host_signals(bytes=300 * MIB, growth=rate(0.03))
    elif why == "plateau":
        row = host_signals(slow=slow(leaks=False))
    elif why == "far":
        row = group(growth=rate(0.005), limit_seconds=Forecast(seconds=9e3, low=8e3, high=None, condition=""))
    else:
        row = host_signals(growth=rate(0.0))
    assert Told(KIND, node(host=row)).last(states(host=there)) is None


def test_a_group_full_of_shared_memory_is_not_full_of_files() -> None:
    row = group(growth=rate(0.05), limit_seconds=SOON)
    there = host(cgroups=(cgroup(12 * GIB, 16 * GIB, parts={"anon": 3 * GIB, "file": 9 * GIB, "shmem": 8 * GIB}),))
    assert Told(KIND, node(host=row)).last(states(host=there)) is not None


def test_files_that_nobody_used_lately_are_not_in_what_grows() -> None:
    row = group(growth=rate(0.05), limit_seconds=SOON)
    parts = {"anon": 2 * GIB, "file": 9 * GIB, "shmem": 5 * GIB}
    grows = {"working_set_bytes": 8 * GIB, "current_bytes": 12 * GIB}
    idle = host(cgroups=(cgroup(8 * GIB, 16 * GIB, parts=parts, **grows),))
    assert Told(KIND, node(host=row)).last(states(host=idle)) is not None
    used = host(cgroups=(cgroup(12 * GIB, 16 * GIB, parts=parts | {"shmem": GIB}),))
    assert Told(KIND, node(host=row)).last(states(host=used)) is None


def test_the_textbook_judges_growth_alone() -> None:
    row = node(host=host_signals(bytes=300 * MIB, growth=rate(0.02)))
    found = Told(KIND, row, TEXTBOOK).last(states())
    assert found is not None
    assert found.tier == "warn"


def test_a_process_and_its_group_are_one_verdict_the_worse() -> None:
    both = (host_signals(growth=rate(0.02)), group(growth=rate(0.02), limit_seconds=SOON))
    found = Told(KIND, node(host=both)).last(states())
    assert found is not None
    assert found.tier == "page"


def test_its_life_while_the_host_is_not_read() -> None:
    def given(now: AgentState) -> NodeSignals:
        return node(host=host_signals(growth=rate(0.05))) if 10 <= now.at - UNIX < 200 else NodeSignals()

    def seen() -> Iterator[AgentState]:
        for t in times(800):
            yield state(t, engines=(engine(),), host=None if 200 <= t < 600 else host())

    told = Told(KIND, given)
    phases = {now.at - UNIX: [each.phase for each in told.look(now)] for now in seen()}
    assert (phases[69], phases[70]) == (["suspect"], ["confirmed"])
    assert phases[599] == ["confirmed"], "held while it can't be seen"
    assert (phases[600], phases[700]) == (["resolved"], [])
