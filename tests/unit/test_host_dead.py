"""Dead pids that hold device memory, restart loops, growth: pure functions of what was read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sources.host.dead import LEAST_BYTES, scan
from agent.sources.host.growth import Samples, growth_of
from agent.sources.host.inputs import Held, Start
from agent.sources.host.restarts import MAX_NAMES, MAX_STARTS, History, remember, restarts
from agent.sources.host.wiring import device_holders, starts, watched
from tests.unit.builders import make_engine, make_frontend, make_silent, make_worker
from tests.unit.host_tree import HostTree
from tests.unit.node_builders import make_devices, make_gpu

GIB = 1024**3
NOW = 1_700_000_000.0
NOBODY: frozenset[tuple[str, int]] = frozenset()


def test_a_dead_pid_is_found_at_the_second_scan_in_a_row() -> None:
    held = {"0": [Held(7, 5 * GIB), Held(8, 6 * GIB)], "1": [Held(7, LEAST_BYTES)]}
    first = scan(NOBODY, held, lambda pid: pid == 8)
    assert first.found == ()
    second = scan(first.suspects, held, lambda pid: pid == 8)
    assert [(row.gpu, row.pid, row.used_bytes) for row in second.found] == [("0", 7, 5 * GIB), ("1", 7, LEAST_BYTES)]


@pytest.mark.parametrize(
    ("held", "alive"),
    [
        ([Held(7, 5 * GIB)], True),  # it lives
        ([Held(7, LEAST_BYTES - 1)], False),  # too little to care
        ([], False),  # it has let go
    ],
)
def test_what_is_no_dead_memory(held: list[Held], alive: bool) -> None:
    before = frozenset({("0", 7)})
    assert scan(before, {"0": held}, lambda _pid: alive) == (NOBODY, ())


def test_one_that_ends_between_two_readings_is_not_found() -> None:
    suspects = scan(NOBODY, {"0": [Held(7, 5 * GIB)]}, lambda _pid: False).suspects
    after = scan(suspects, {"0": []}, lambda _pid: False)
    assert after == (NOBODY, ())
    assert scan(after.suspects, {"0": [Held(7, 5 * GIB)]}, lambda _pid: False).found == (), "the row was broken"


def test_dead_memory_by_gpu_in_the_host_state(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.process(8)
    tree.held = {"0": [Held(7, 5 * GIB), Held(9, 4 * GIB), Held(8, 40 * GIB)], "1": [Held(8, 9 * GIB)]}
    assert tree.read().dead == ()
    state = tree.read()
    assert [row.pid for row in state.dead] == [7, 9]
    assert state.dead_bytes == {"0": 9 * GIB, "1": 0}
    tree.held = None  # the device source has no value
    state = tree.read()
    assert (state.dead, state.dead_bytes) == (None, None)
    assert "dead" in state.unavailable
    tree.held = {"0": [Held(7, 5 * GIB)]}
    assert tree.read().dead == (), "two scans must follow each other"


def test_without_the_hosts_pids_nobody_is_called_dead(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.namespace("self", 4026532001)
    tree.held = {"0": [Held(7, 5 * GIB)]}
    tree.read()
    state = tree.read()
    assert (state.dead, state.dead_bytes, state.host_pids) == (None, None, False)
    assert "pid namespace" in state.unavailable["host_pids"]
    tree.namespace("self", 0xEFFFFFFC)
    tree.read()
    assert len(tree.read().dead) == 1


# -- restart loops -------------------------------------------------------------------------------------------


def history(*minutes: float, engine: str = "m") -> History:
    """Starts so many minutes before now, each seen when it was new."""
    found: History = {}
    for minute in sorted(minutes, reverse=True):
        at = NOW - 60 * minute
        found = remember(found, [Start(engine, str(minute), at)], at + 1)
    return found


@pytest.mark.parametrize(
    ("minutes", "count"),
    [
        ((10,), 0),  # came up for the first time
        ((10, 5), 1),  # one restart, such as a roll-out
        ((100, 5), 1),  # the one before is long ago, and still there was one
        ((40, 20, 5), 2),
        ((100, 20, 5), 2),
        ((40, 30, 20, 5), 3),
        ((100, 90, 80, 70), 0),  # a loop that has ended
    ],
)
def test_restarts_in_45_minutes(minutes: tuple[float, ...], count: int) -> None:
    (row,) = restarts(history(*minutes), {"m"}, NOW)
    assert (row.engine, row.restarts) == ("m", count)


def test_the_same_start_seen_again_and_other_names_are_no_restarts() -> None:
    found: History = {}
    for second in range(300):
        ranks = [Start(f"m/{rank}", str(rank), NOW) for rank in range(8)]
        found = remember(found, ranks, NOW + second)
    assert [row.restarts for row in restarts(found, {f"m/{rank}" for rank in range(8)}, NOW + 300)] == [0] * 8


def test_a_name_that_is_gone_has_a_row_only_while_there_is_something_to_count() -> None:
    found = history(30, 20, 10)
    assert [row.restarts for row in restarts(found, (), NOW)] == [2]
    later = remember(found, (), NOW + 3600)
    assert restarts(later, (), NOW + 3600) == ()


@given(st.lists(st.tuples(st.integers(0, 2 * MAX_NAMES), st.integers(0, 5000)), max_size=2000))
def test_what_is_remembered_is_bounded(seen: list[tuple[int, int]]) -> None:
    found: History = {}
    for name, at in seen:
        found = remember(found, [Start(str(name), str(at), NOW + at)], NOW + 5000)
    assert len(found) <= MAX_NAMES
    assert all(len(starts) <= MAX_STARTS for starts in found.values())


def test_restarts_of_the_source(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    for number in range(3):
        tree.starts = (Start("m", str(number), tree.unix_clock.now),)
        state = tree.read(60.0)
    assert [(row.engine, row.restarts) for row in state.restarts] == [("m", 2)]


# -- growth --------------------------------------------------------------------------------------------------


def samples(sizes: list[int]) -> list[tuple[float, int]]:
    return [(30.0 * number, size) for number, size in enumerate(sizes)]


def test_growth_is_a_slope_and_one_step_is_none() -> None:
    steady = growth_of(samples([1000 + 10 * number for number in range(21)]))
    assert steady.bytes_per_second == pytest.approx(1 / 3)
    assert steady.ratio_per_minute == pytest.approx(20 / 1100)
    assert growth_of(samples([1000] * 20 + [9000])).bytes_per_second == 0
    assert growth_of(samples([1000] * 16 + [2000] * 5)).bytes_per_second == 0
    assert growth_of(samples([2000 - number for number in range(21)])).bytes_per_second < 0


def test_growth_is_not_told_from_little() -> None:
    assert growth_of(samples([1000 + number for number in range(9)])) is None
    assert growth_of([(5.0, number) for number in range(20)]) is None


def test_samples_are_bounded_and_taken_each_half_minute() -> None:
    kept = Samples()
    for second in range(0, 7200, 5):
        kept.add(float(second), 1000 + second)
    assert kept.growth.seconds == 600.0
    assert kept.growth.bytes_per_second == pytest.approx(1.0)
    kept.add(7200.0, None)
    assert kept.growth.seconds == 600.0


# -- what the rest of the agent tells ------------------------------------------------------------------------


def test_wiring_from_the_agents_state() -> None:
    engines = (make_engine(members=(make_worker(pid=0), make_frontend(pid=9))), make_silent(phase="lost", pid=5))
    assert [tuple(row) for row in watched(engines)] == [
        ("m", "core", 0, 4321),
        ("m", "frontend", 0, 9),
        ("quiet", "core", 0, 5),
    ]
    assert [row.engine for row in starts(engines)] == ["m"]
    assert device_holders(None) is None
    assert device_holders(make_devices(make_gpu("0"), make_gpu("1", processes=None))) == {
        "0": [Held(7, 61000 * 1024**2)]
    }
