"""Memory that a sleeping engine still holds; one that is awake, or sleeps as it should, is no fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.sources.device.state import GpuProcess, GpuProcesses
from agent.state import AgentState
from engine_hooks.allocator import AllocatorRow, DeviceRow, TagRow
from tests.unit.timeline import GIB, engine, gpu, host, member, state, times, watch


def tag(name: str, size: int, mapped: int | None) -> TagRow:
    return TagRow(tag=name, device=0, allocations=3, bytes=size, mapped_bytes=mapped, backed_up_bytes=0)


def row(reserved: int, *tags: TagRow) -> AllocatorRow:
    return AllocatorRow(backend="native", devices=(DeviceRow(device=0, reserved_bytes=reserved),), tags=tags)


def nodes(allocator: AllocatorRow, seconds: float = 120.0, **parts: Any) -> Iterator[AgentState]:
    for t in times(seconds):
        yield state(t, engines=(engine(members=(member(allocator),), running=0),), **parts)


ASLEEP = (tag("weights", 16 * GIB, 0), tag("kv_cache", 40 * GIB, 0))


@pytest.mark.parametrize(
    "allocator",
    [
        row(58 * GIB, tag("weights", 16 * GIB, 16 * GIB), tag("kv_cache", 40 * GIB, 40 * GIB)),  # awake
        row(58 * GIB, *ASLEEP),  # 2 GiB are left, of graphs and buffers
        row(58 * GIB, tag("weights", 16 * GIB, None), tag("kv_cache", 40 * GIB, None)),  # not told
        row(58 * GIB),  # no sleep mode
        row(58 * GIB, tag("weights", 16 * GIB, 16 * GIB), tag("kv_cache", 40 * GIB, 0)),  # being woken up
    ],
    ids=["awake", "asleep", "not told", "no sleep mode", "half awake"],
)
def test_it_is_quiet(allocator: AllocatorRow) -> None:
    assert watch(nodes(allocator)).kinds() == set()


def test_what_sleep_mode_did_not_make_stays() -> None:
    seen = watch(nodes(row(72 * GIB, *ASLEEP)))
    verdict = seen.of("sleep_residue")
    assert (verdict.phase, verdict.tier, seen.at("sleep_residue")) == ("confirmed", "warn", 30.0)
    assert verdict.sentence == "The engine sleeps, and its process still holds 16.0 GiB on the GPU."
    assert verdict.evidence == {"residue_bytes": 16 * GIB, "ranks": 1}
    assert "kv_stall" not in seen.kinds()


def test_the_drivers_word_counts_where_pids_are_those_of_the_host() -> None:
    used = gpu(20 * GIB, processes=GpuProcesses(rows=(GpuProcess(pid=4322, used_bytes=18 * GIB, kind="C"),), count=1))
    verdict = watch(nodes(row(58 * GIB, *ASLEEP), gpus=[used], host=host())).of("sleep_residue")
    assert "18.0 GiB" in verdict.sentence
    inside = watch(nodes(row(58 * GIB, *ASLEEP), gpus=[used], host=host(host_pids=False)))
    assert "sleep_residue" not in inside.kinds()


def test_half_awake_for_long_is_a_residue_and_what_stays_is_named() -> None:
    half = row(58 * GIB, tag("weights", 16 * GIB, 16 * GIB), tag("kv_cache", 40 * GIB, 0))
    seen = watch(nodes(half, 400.0))
    assert seen.at("sleep_residue") == 300.0
    assert seen.of("sleep_residue").sentence == (
        "The engine sleeps, and its process still holds 18.0 GiB on the GPU, of it 16.0 GiB of weights."
    )


def test_it_is_over_when_the_engine_wakes_up() -> None:
    def both() -> Iterator[AgentState]:
        for t in times(300):
            asleep = 50 <= t < 200
            tags = ASLEEP if asleep else (tag("weights", 16 * GIB, 16 * GIB), tag("kv_cache", 40 * GIB, 40 * GIB))
            yield state(t, engines=(engine(members=(member(row(72 * GIB, *tags)),), running=0),))

    seen = watch(both())
    assert seen.at("sleep_residue") == 80.0
    assert seen.last == ()
