"""Cgroups: limits of ancestors, events, pressure; and what there is without version 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.sources.host.cgroups import memory_path_in
from agent.sources.host.state import CgroupState, HostState
from tests.unit.host_tree import HostTree


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    tree = HostTree(tmp_path)
    tree.process(70, cgroup="/pods/pod/a")
    tree.watch(70)
    for path in ("/pods", "/pods/pod", "/pods/pod/a"):
        tree.cgroup(path)
    return tree


def only(state: HostState) -> CgroupState:
    (row,) = state.cgroups
    return row


def test_all_that_a_cgroup_tells(tree: HostTree) -> None:
    row = only(tree.read())
    assert (row.engine, row.role, row.rank, row.path) == ("m", "core", 0, "/pods/pod/a")
    assert (row.current_bytes, row.working_set_bytes, row.swap_bytes) == (6000, 5300, 40)
    assert row.events == {"low": 0, "high": 4, "max": 3, "oom": 2, "oom_kill": 1, "oom_group_kill": 0}
    assert row.parts["anon"] == 5000
    assert "pgfault" not in row.parts
    assert (row.pressure.some_ratio, row.pressure.full_ratio) == (0.25, 0.125)
    assert (row.pressure.some_seconds, row.pressure.full_seconds) == (12.5, 6.25)
    assert (row.limit_bytes, row.limit_of, row.limit_current_bytes, row.high_bytes) == (None, "", None, None)
    assert row.unavailable == {}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"/pods/pod/a": "8000"}, (8000, "/pods/pod/a")),
        ({"/pods/pod/a": "8000", "/pods": "7000"}, (7000, "/pods")),
        ({"/pods/pod/a": "8000", "/pods/pod": "9000", "/pods": "9500"}, (8000, "/pods/pod/a")),
        ({"/pods/pod/a": "8000", "/pods/pod": "8000"}, (8000, "/pods/pod")),
        ({"/pods/pod": "0"}, (0, "/pods/pod")),
    ],
)
def test_the_least_limit_counts_and_whose_it_is(
    tree: HostTree, limits: dict[str, str], expected: tuple[int, str]
) -> None:
    for path, size in limits.items():
        tree.cgroup(path, max=size + "\n", current="6500" if path == expected[1] else "6000")
    row = only(tree.read())
    assert (row.limit_bytes, row.limit_of) == expected
    assert row.limit_current_bytes == 6500, "that of the cgroup that has the limit: siblings count"


def test_high_and_swap_limits_are_found_upwards_too(tree: HostTree) -> None:
    tree.cgroup("/pods", high="7000", **{"swap.max": "0"})
    row = only(tree.read())
    assert (row.high_bytes, row.high_of, row.swap_limit_bytes) == (7000, "/pods", 0)


def test_the_topmost_that_a_container_sees_is_its_own(tree: HostTree) -> None:
    tree.cgroup("/", max="5000", current="4000")
    tree.process(70, cgroup="/")
    row = only(tree.read())
    assert (row.path, row.current_bytes, row.limit_bytes, row.limit_of) == ("/", 4000, 5000, "/")


def test_the_hosts_root_has_no_numbers_and_says_so(tree: HostTree) -> None:
    tree.process(70, cgroup="/")
    row = only(tree.read())
    assert (row.current_bytes, row.limit_bytes, row.events) == (None, None, None)
    assert row.unavailable == {"cgroup": "it is in the root cgroup, which has no count and no limit of its own"}


def test_where_memory_is_not_counted_the_nearest_that_counts_stands_for_it(tree: HostTree) -> None:
    (tree.cgroups / "pods/pod/a/inner").mkdir()
    tree.process(70, cgroup="/pods/pod/a/inner")
    assert only(tree.read()).path == "/pods/pod/a"


def test_a_file_that_fails_costs_that_file(tree: HostTree) -> None:
    folder = tree.cgroups / "pods/pod/a"
    (folder / "memory.pressure").unlink()
    (folder / "memory.swap.current").unlink()
    row = only(tree.read())
    assert row.unavailable == {"memory.pressure": "not here", "memory.swap.current": "not here"}
    assert (row.pressure, row.swap_bytes, row.current_bytes) == (None, None, 6000)
    tree.cgroup("/pods/pod/a", pressure="some avg10=x\n")
    assert only(tree.read()).unavailable == {"memory.pressure": "not in a form that we know"}


def test_engines_in_one_cgroup_and_one_engine_in_two(tree: HostTree) -> None:
    tree.cgroup("/b")
    tree.process(71, cgroup="/pods/pod/a")
    tree.process(72, cgroup="/b")
    tree.process(73, cgroup="/b")
    tree.watch(71, 72, role="worker")
    tree.watch(73, engine="n")
    found = {(row.engine, row.role, row.rank): row.path for row in tree.read().cgroups}
    assert found == {("m", "core", 0): "/pods/pod/a", ("m", "worker", 1): "/b", ("n", "core", 0): "/b"}


def test_a_path_outside_of_what_the_agent_sees(tree: HostTree) -> None:
    tree.process(70, cgroup="/../../pods/pod/a")
    assert "cgroup namespace" in only(tree.read()).unavailable["cgroup"]
    other = HostTree(_sub(tree, "other"))
    other.process(70, cgroup="/not/mounted (deleted)")
    other.watch(70)
    assert "mount the host's /sys/fs/cgroup" in only(other.read()).unavailable["cgroup"]


def _sub(tree: HostTree, name: str) -> Path:
    folder = tree.proc.parent / name
    folder.mkdir()
    return folder


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2 without memory", "nothing"])
def test_without_version_2_the_reason_is_said_and_nothing_made_up(tree: HostTree, layout: str) -> None:
    (tree.cgroups / "cgroup.controllers").unlink()
    if layout in {"v1", "hybrid"}:
        (tree.cgroups / "memory").mkdir()
    if layout == "hybrid":
        (tree.cgroups / "unified").mkdir()
    if layout == "v2 without memory":
        (tree.cgroups / "cgroup.controllers").write_text("cpu io\n")
    state = tree.read()
    assert state.cgroups == ()
    reason = state.unavailable["cgroups"]
    assert ("cgroup v1" in reason) == (layout in {"v1", "hybrid"})
    assert state.processes[0].resident_bytes, "the rest is read"


def test_growth_is_that_of_the_working_set(tree: HostTree) -> None:
    for minute in range(12):
        # The page cache grows fast, the rest slowly.
        stat = f"anon {5000 + 10 * minute}\ninactive_file {700 + 1000 * minute}\n"
        tree.cgroup("/pods/pod/a", current=str(5700 + 1010 * minute), stat=stat)
        row = only(tree.read(60.0))
    assert row.growth.bytes_per_second == pytest.approx(10 / 60)


def test_the_path_that_tells_most_on_a_hybrid_host() -> None:
    v1 = "9:name=systemd:/s\n4:cpu,memory:/docker/abc\n0::/\n"
    assert memory_path_in(v1) == "/docker/abc"
    assert memory_path_in("4:memory:/x\n0::/kubepods/y\n") == "/kubepods/y"
    assert memory_path_in("garbage\n") is None
