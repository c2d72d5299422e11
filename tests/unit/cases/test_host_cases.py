"""Reports on the memory of hosts, pods and processes: what grows for ever, and what only looks like it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from agent.state import AgentState
from tests.unit.timeline import GIB, MIB, cgroup, engine, host, process, state, times, watch

HOUR = 3600.0


def grows(
    level: Callable[[float], float], hours: float, limit: int | None = None, period: float = 10.0
) -> Iterator[AgentState]:
    """Engine m, whose core holds ``level`` (bytes) at each time, in a pod with ``limit``."""
    for t in times(hours * HOUR, period):
        size = int(level(t))
        there = host(processes=(process(size),), cgroups=(cgroup(size, limit),) if limit else ())
        yield state(t, engines=(engine(),), host=there)


def test_kv_04_a_staircase_that_never_comes_down() -> None:
    """One step per overload and abort cycle; the GPU is flat."""
    seen = watch(grows(lambda t: 6 * GIB + 700 * MIB * int(t / 1200), 4, limit=32 * GIB))
    assert "host_growth" in seen.kinds()
    assert seen.at("host_growth") < 4 * HOUR


def test_host_06_image_requests_that_stay() -> None:
    seen = watch(grows(lambda t: 3209 * MIB + 200 * GIB * t / (12 * HOUR), 2, limit=220 * GIB))
    assert "host_growth" in seen.kinds()
    assert seen.at("host_growth") < 2 * HOUR
    verdict = seen.of("host_growth")
    assert "m" in str(verdict.subject)


def test_host_08_a_slope_that_begins_with_a_new_version() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(14 * HOUR, 20):
            new = t >= 4 * HOUR
            size = 5 * GIB + (int(600 * MIB * (t - 4 * HOUR) / HOUR) if new else 0)
            core = process(size, pid=5000 if new else 4321, started_at=1_700_000_000.0 + (4 * HOUR if new else -HOUR))
            both = engine(instance="new" if new else "old", pid=core.pid)
            yield state(t, engines=(both,), host=host(processes=(core,), cgroups=(cgroup(size, 16 * GIB),)))

    seen = watch(states())
    assert "host_growth" in seen.kinds()
    assert 4 * HOUR < seen.at("host_growth") < 14 * HOUR


def test_host_14_and_host_15_memory_that_grows_for_hours_up_to_a_limit() -> None:
    seen = watch(grows(lambda t: 8 * GIB + 1.2 * GIB * t / HOUR, 6, limit=24 * GIB))
    assert "host_growth" in seen.kinds()
    assert seen.at("host_growth") < 6 * HOUR


def test_host_09_growth_that_levels_off_is_no_leak() -> None:
    """12.4 GiB after a warm-up that adds 0.62 GiB over forty turns, then flat."""
    seen = watch(grows(lambda t: 11.8 * GIB + 0.62 * GIB * (1 - math.exp(-t / (0.4 * HOUR))), 12, limit=32 * GIB))
    assert seen.kinds() == set()


def test_host_04_a_high_water_mark_is_no_leak() -> None:
    seen = watch(grows(lambda t: 6 * GIB + min(107.39, 0.1 * t) * MIB, 12, limit=32 * GIB))
    assert seen.kinds() == set()


def test_host_10_twice_the_memory_at_the_start_is_no_growth() -> None:
    """An offload buffer of 200 GiB takes 384: a step, and then nothing."""
    seen = watch(grows(lambda t: 4 * GIB if t < 60 else 388 * GIB, 6))
    assert "host_growth" not in seen.kinds()


def test_nv_29_a_few_mebibytes_up_and_down_for_two_days() -> None:
    sizes = (155, 155, 135, 153, 154)
    seen = watch(grows(lambda t: sizes[int(t / 36000) % 5] * MIB + 200 * MIB, 48, limit=1 * GIB, period=60.0))
    assert seen.kinds() == set()


def test_nv_27_from_100_to_512_mib_in_a_day() -> None:
    seen = watch(grows(lambda t: 100 * MIB + 17.2e6 * t / HOUR, 20, limit=512 * MIB, period=30.0))
    assert "host_growth" in seen.kinds()
    assert seen.at("host_growth") < 20 * HOUR
