"""The host source: engines' processes, from a made-up /proc."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent.sources.base import SourceError
from agent.sources.config import HostConfig
from agent.sources.host.children import Kin, children
from agent.sources.host.inputs import Watched
from agent.sources.host.pids import InnerPid, PidMap
from agent.sources.host.procfs import inner_pid, is_alive, parse_stat, sizes_of
from agent.sources.host.source import HostSource
from agent.sources.host.state import Place
from tests.unit.host_tree import BOOTED, KIB, HostTree
from tests.unit.node_builders import make_process


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def test_a_process_with_all_that_it_tells(tree: HostTree) -> None:
    tree.process(70, inner=21, cgroup="/system.slice/docker-" + "d" * 64 + ".scope")
    tree.watch(70)
    (row,) = tree.read().processes
    expected = {
        "engine": "m",
        "role": "core",
        "rank": 0,
        "pid": 70,
        "inner_pid": 21,
        "pid_namespace": 4026532001,
        "started_at": BOOTED + 100.0,
        "resident_bytes": 5000 * KIB,
        "anonymous_bytes": 4000 * KIB,
        "file_bytes": 600 * KIB,
        "shared_bytes": 400 * KIB,
        "swap_bytes": 3 * KIB,
        "locked_bytes": 5 * KIB,
        "pinned_bytes": 7 * KIB,
        "proportional_bytes": 4500 * KIB,
        "unique_bytes": 4200 * KIB,
        "proportional_age_seconds": 0.0,
        "threads": 90,
        "open_files": 3,
        "oom_score_adj": 500,
        "major_faults": 17,
        "cgroup": "/system.slice/docker-" + "d" * 64 + ".scope",
        "place": Place(runtime="docker", container="d" * 64),
        "unavailable": {},
    }
    assert {name: getattr(row, name) for name in expected} == expected
    assert row.shm_size_bytes > row.shm_used_bytes >= 0


def test_one_process_under_several_roles_is_read_once_under_the_first(tree: HostTree) -> None:
    tree.process(70)
    tree.process(71)
    tree.watched = (
        Watched("m", "worker", 0, 70),
        Watched("m", "frontend", 0, 71),
        Watched("m", "core", 0, 70),
        Watched("m", "worker", 1, 0),
    )
    assert [(row.role, row.pid) for row in tree.read().processes] == [("core", 70), ("frontend", 71)]


def test_one_that_has_ended_is_no_error_and_one_with_its_pid_is_another(tree: HostTree) -> None:
    tree.process(70)
    tree.watch(70, 71)
    assert [row.pid for row in tree.read().processes] == [70]
    tree.process(70, start=99_999)
    assert tree.read().processes == (), "the pid's next user is not the process that we were told of"
    (tree.proc / "70" / "stat").unlink()
    state = tree.read()
    assert state.processes == ()
    assert state.unavailable.keys() == {"dead"}


def test_what_needs_permission_is_absent_with_a_reason_and_the_rest_is_there(
    tree: HostTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.process(70)
    tree.watch(70)
    really = os.open

    def forbid(path: str, *args: object, **kwargs: object) -> int:
        if str(path).endswith("smaps_rollup"):
            raise PermissionError(13, "Permission denied")
        return really(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", forbid)
    (row,) = tree.read().processes
    assert (row.proportional_bytes, row.unique_bytes, row.proportional_age_seconds) == (None, None, None)
    assert row.unavailable.keys() == {"proportional"}
    assert "CAP_SYS_PTRACE" in row.unavailable["proportional"]
    assert (row.resident_bytes, row.open_files) == (5000 * KIB, 3)


def test_a_hidden_process_is_there_with_nothing_but_the_reason(tree: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.process(70)
    tree.watch(70)
    monkeypatch.setattr(os, "open", lambda *_args: (_ for _ in ()).throw(PermissionError(1, "hidden")))
    (row,) = tree.read().processes
    assert (row.engine, row.pid, row.resident_bytes) == ("m", 70, None)
    assert "no permission" in row.unavailable["process"]


def test_files_that_an_old_kernel_lacks_or_that_are_garbled(tree: HostTree) -> None:
    tree.process(70)
    tree.watch(70)
    (tree.proc / "70" / "smaps_rollup").unlink()
    tree.write("70/status", "VmRSS:\t 1 kB\n")
    tree.write("70/oom_score_adj", "many\n")
    (row,) = tree.read().processes
    assert row.unavailable == {
        "proportional": "this kernel does not have it",
        "oom_score_adj": "not in a form that we know",
    }
    assert (row.resident_bytes, row.pinned_bytes, row.inner_pid) == (KIB, None, None)
    tree.write("70/stat", "garbage")
    (row,) = tree.read().processes
    assert row.unavailable.keys() == {"process"}


def test_what_costs_is_read_rarely_and_its_age_is_told(tree: HostTree) -> None:
    tree.process(70)
    tree.watch(70)
    tree.read()
    tree.write("70/smaps_rollup", "Pss: 1 kB\n")
    tree.write("70/oom_score_adj", "1\n")
    (row,) = tree.read(20.0).processes
    assert (row.proportional_bytes, row.proportional_age_seconds, row.oom_score_adj) == (4500 * KIB, 20.0, 500)
    (row,) = tree.read(10.0).processes
    assert (row.proportional_bytes, row.proportional_age_seconds, row.oom_score_adj) == (KIB, 0.0, 1)
    assert row.unique_bytes is None


@pytest.fixture
def walks(tree: HostTree, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pids whose pages were walked through, which takes 0.3 s of the tree's clock."""
    really, found = os.open, []

    def slow(path: str, *args: object, **kwargs: object) -> int:
        if str(path).endswith("smaps_rollup"):
            tree.clock.now += 0.3
            found.append(int(Path(path).parent.name))
        return really(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", slow)
    return found


def test_walks_through_pages_share_little_of_the_time_and_take_turns(tree: HostTree, walks: list[int]) -> None:
    for pid in (70, 71, 72):
        tree.process(pid)
    tree.watch(70, 71, 72)
    first = tree.read().processes
    assert walks == [70], "the first spends all that may be spent at once"
    assert first[1].unavailable["proportional"].startswith("not its turn yet")
    assert first[1].proportional_bytes is None
    began = tree.clock.now
    while tree.clock.now - began < 3000:
        rows = tree.read().processes
    assert len(walks) == pytest.approx(1 + 3000 * 0.0005 / 0.3, abs=1)
    assert walks[:6] == [70, 71, 72, 70, 71, 72]
    assert [row.proportional_bytes for row in rows] == [4500 * KIB] * 3
    assert max(row.proportional_age_seconds for row in rows) > 300


def test_pss_is_not_read_when_it_is_switched_off(tmp_path: Path) -> None:
    tree = HostTree(tmp_path, proportional_seconds=0)
    tree.process(70)
    tree.watch(70)
    (row,) = tree.read().processes
    assert (row.proportional_bytes, row.unavailable) == (None, {})


def test_growth_is_told_after_five_minutes(tree: HostTree) -> None:
    tree.watch(70)
    rows = []
    for minute in range(12):
        tree.process(70, resident=5000 + 50 * minute)
        rows.append(tree.read(60.0).processes[0])
    assert rows[8].growth is None
    assert rows[10].growth.bytes_per_second == pytest.approx(50 * KIB / 60)
    assert rows[11].growth.ratio_per_minute == pytest.approx(50 / 5300, rel=0.05)
    assert rows[11].growth.seconds == 600.0


def test_children_are_counted_once_under_the_nearest_engine(tree: HostTree) -> None:
    tree.process(70)
    tree.process(71, parent=70, resident=100)  # another of the same engine: watched, so no child
    tree.process(72, parent=71, resident=40)
    tree.process(73, parent=72, resident=4)
    tree.process(80, resident=999)
    tree.process(74, parent=73, state="Z")
    tree.watch(70, 71)
    (row,) = tree.read().children
    assert (row.engine, row.processes, row.resident_bytes) == ("m", 2, 44 * KIB)
    tree.process(75, parent=70, resident=4)
    assert tree.read(5.0).children[0].processes == 2, "looked for rarely"
    assert tree.read(30.0).children[0].processes == 3


def test_children_of_a_garbled_tree_end() -> None:
    kin = [Kin(1, 2, 10), Kin(2, 1, 10), Kin(3, 3, 10), Kin(4, 9, 10), Kin(9, 8, 10)]
    (row,) = children(kin, {9: "m"})
    assert (row.processes, row.resident_bytes) == (1, 10)


def test_pids_are_mapped_both_ways() -> None:
    rows = [make_process(pid=70, inner_pid=21, pid_namespace=5), make_process(pid=71, inner_pid=21, pid_namespace=6)]
    pids = PidMap([*rows, make_process(pid=72, inner_pid=1, pid_namespace=None)])
    assert pids.inner(70) == InnerPid(21, 5)
    assert (pids.outer(21, 5), pids.outer(21, 6)) == (70, 71)
    assert (pids.inner(72), pids.outer(1, 5), pids.inner(1)) == (None, None, None)


def test_without_proc_the_source_is_down(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no"):
        HostSource(HostConfig(), proc=str(tmp_path / "none")).read()


def test_host_memory_and_what_is_missing_there(tree: HostTree) -> None:
    state = tree.read()
    kinds = {"total": 1000, "available": 400, "locked": 7, "hugepages_free": 3 * 2048}
    assert state.memory == {kind: size * KIB for kind, size in kinds.items()}
    assert state.oom_kills_total == 6
    assert state.shm.keys() == {"size", "used"}
    for name in ("meminfo", "vmstat"):
        (tree.proc / name).unlink()
    tree.shm.rmdir()
    state = tree.read()
    assert (state.memory, state.oom_kills_total, state.shm) == (None, None, None)
    assert {"memory", "oom_kills", "shm"} <= state.unavailable.keys()


def test_text_of_proc() -> None:
    assert parse_stat("7 (x) y) Z 3 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0 9 0 123 0 11").start_ticks == 123
    assert sizes_of("AVmRSS: 3 kB\nVmRSS:\t 4 kB\nVmPin:  x kB\nVmLck: 5 MB", ("VmRSS", "VmPin", "VmLck")) == {
        "VmRSS": 4096
    }
    assert sizes_of("VmRSS: 4 kB\n", ("VmRSS", "VmSwap")) == {"VmRSS": 4096}
    assert inner_pid("NSpid:\t70\t21\t3\nNSpgid:\t70\n") == 3
    assert inner_pid("NStgid:\t70\n") is None


def test_a_zombie_lives_while_its_threads_do(tree: HostTree) -> None:
    tree.process(70, state="Z")
    assert not is_alive(str(tree.proc), 70)
    tree.write("70/task/2", "")
    assert is_alive(str(tree.proc), 70)
    assert not is_alive(str(tree.proc), 71)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc")
def test_this_very_process_by_the_real_proc() -> None:
    source = HostSource(HostConfig(), lambda: (Watched("m", "core", 0, os.getpid()),))
    (row,) = source.read().processes
    assert row.resident_bytes > 10 * 1024 * KIB
    assert row.unique_bytes <= row.proportional_bytes
    assert row.threads >= 1
    assert row.open_files >= 3
    assert row.unavailable == {}, sys.platform
