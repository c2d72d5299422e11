"""Processes that are gone and were killed for memory, told from those that ended by themselves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.sources.host.killed import MAX_KILLED
from tests.unit.host_tree import HostTree


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    tree = HostTree(tmp_path)
    for path in ("/pod", "/pod/a"):
        events(tree, path, 1)
    tree.process(70, cgroup="/pod/a")
    tree.watch(70)
    tree.read()
    return tree


def events(tree: HostTree, path: str, kills: int) -> None:
    tree.cgroup(path, events=f"oom 0\noom_kill {kills}\n")


def host_kills(tree: HostTree, kills: int) -> None:
    tree.write("vmstat", f"oom_kill {kills}\n")


def end(tree: HostTree, pid: int = 70) -> None:
    shutil.rmtree(tree.proc / str(pid))


def test_one_that_its_own_cgroup_has_counted(tree: HostTree) -> None:
    events(tree, "/pod/a", 2)
    events(tree, "/pod", 2)
    end(tree)
    (row,) = tree.read().killed
    assert (row.engine, row.role, row.pid, row.counted_by, row.certain) == ("m", "core", 70, "/pod/a", True)
    assert row.at == tree.unix_clock.now
    after = tree.read()
    assert len(after.killed) == 1, "told once, and kept"
    assert after.kills_total == {"m": 1}


def test_when_the_container_is_gone_those_around_it_speak(tree: HostTree) -> None:
    events(tree, "/pod", 2)
    shutil.rmtree(tree.cgroups / "pod/a")
    end(tree)
    (row,) = tree.read().killed
    assert (row.counted_by, row.certain) == ("/pod", False)


def test_when_all_of_them_are_gone_the_host_speaks(tree: HostTree) -> None:
    shutil.rmtree(tree.cgroups / "pod")
    host_kills(tree, 7)
    end(tree)
    (row,) = tree.read().killed
    assert (row.counted_by, row.certain) == ("", False)


@pytest.mark.parametrize("how", ["nothing counted", "a kill elsewhere", "it lives", "before we looked"])
def test_what_was_not_killed(tree: HostTree, how: str) -> None:
    if how == "a kill elsewhere":
        events(tree, "/pod", 2)  # a sibling's: its own cgroup is there, and has counted none
        host_kills(tree, 7)
    if how == "before we looked":
        events(tree, "/pod/a", 2)
        tree.read()
    if how == "it lives":
        events(tree, "/pod/a", 2)  # a child of it, such as a compiler
    else:
        end(tree)
    state = tree.read()
    assert (state.killed, state.kills_total) == ((), {"m": 0})


def test_an_engine_that_was_forgotten_first_is_judged_all_the_same(tree: HostTree) -> None:
    tree.watched = ()
    events(tree, "/pod/a", 2)
    end(tree)
    state = tree.read()
    assert [row.pid for row in state.killed] == [70]
    assert state.processes == ()


def test_one_that_left_us_alive_is_not_looked_for_later(tree: HostTree) -> None:
    tree.watched = ()
    tree.read()
    events(tree, "/pod/a", 2)
    end(tree)
    assert tree.read().killed == ()


def test_on_a_host_without_version_2_only_the_host_counts(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    (tree.cgroups / "cgroup.controllers").unlink()
    tree.process(70, cgroup="/")
    tree.process(71, cgroup="/")
    tree.watch(70, 71)
    tree.read()
    end(tree)
    assert tree.read().killed == ()
    host_kills(tree, 7)
    end(tree, 71)
    assert [(row.pid, row.counted_by, row.certain) for row in tree.read().killed] == [(71, "", False)]


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    for number in range(MAX_KILLED + 5):
        tree.process(100 + number)
        tree.watched = ()
        tree.watch(100 + number)
        tree.read()
        host_kills(tree, 100 + number)
        end(tree, 100 + number)
        state = tree.read()
    assert len(state.killed) == MAX_KILLED
    assert state.killed[0].pid == 100 + MAX_KILLED + 4, "newest first"
    assert state.kills_total == {"m": MAX_KILLED + 5}


def test_the_next_user_of_a_pid_is_not_the_engine(tree: HostTree) -> None:
    tree.process(70, start=99_999)
    assert tree.read().processes == ()
    assert tree.read().processes == ()
    tree.watched = ()
    tree.watch(70, engine="new")
    assert [row.engine for row in tree.read().processes] == ["new"]
