"""What a process says of its own memory and its cgroup: numbers that are there, and none in the place of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_hooks import wire
from engine_hooks.own_memory import EVERY_SECONDS, PAGE_BYTES, OwnMemory, OwnMemoryRow, resident_bytes

MIB = 1 << 20


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    (folder / "statm").write_text("1000 250 20 1 0 300 0\n")
    return folder


def group(root: Path, path: str, **files: str) -> None:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(f"{text}\n")


def read(proc: Path, root: Path, cgroup: str) -> OwnMemoryRow:
    (proc / "cgroup").write_text(cgroup)
    found = OwnMemory(proc, root).fresh(100.0)
    assert found is not None
    assert found.resident_bytes == 250 * PAGE_BYTES
    assert wire.decode(wire.encode(wire.Heartbeat(silent_seconds=0.0, memory=found))).memory == found  # type: ignore[attr-defined]
    return found


def test_the_least_limit_of_all_that_is_around_it_counts(proc: Path, tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    group(root, "pod", max=str(64 * MIB), current=str(50 * MIB))
    group(root, "pod/engine", max="max", current=str(40 * MIB))
    found = read(proc, root, "1:name=systemd:/x\n0::/pod/engine\n")
    assert (found.cgroup_bytes, found.cgroup_limit_bytes) == (40 * MIB, 64 * MIB)


def test_in_a_container_its_own_cgroup_is_the_root(proc: Path, tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    group(root, "", max=str(8 * MIB), current=str(5 * MIB))
    found = read(proc, root, "0::/\n")
    assert (found.cgroup_bytes, found.cgroup_limit_bytes) == (5 * MIB, 8 * MIB)


def test_without_a_limit_there_is_none_and_no_zero(proc: Path, tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    group(root, "engine", max="max", current="0")
    found = read(proc, root, "0::/engine\n")
    assert (found.cgroup_bytes, found.cgroup_limit_bytes) == (0, None)


@pytest.mark.parametrize("cgroup", ["", "4:memory:/x\n", "0::/../other\n", "0::/not/there\n", "junk"])
def test_what_is_not_seen_is_not_told(proc: Path, tmp_path: Path, cgroup: str) -> None:
    group(tmp_path / "other", "", max="1", current="1")
    found = read(proc, tmp_path / "cgroup", cgroup)
    assert (found.cgroup_bytes, found.cgroup_limit_bytes) == (None, None)


@pytest.mark.parametrize("text", ["", "junk\n", "-5\n", str(1 << 61), "\xff"])
def test_a_number_that_is_none_is_not_told(proc: Path, tmp_path: Path, text: str) -> None:
    root = tmp_path / "cgroup"
    group(root, "engine", max=text, current=text)
    found = read(proc, root, "0::/engine\n")
    assert (found.cgroup_bytes, found.cgroup_limit_bytes) == (None, None)


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert OwnMemory(tmp_path, tmp_path).fresh(1e9) == OwnMemoryRow(resident_bytes=None)
    assert resident_bytes(tmp_path) is None


def test_it_is_told_each_ten_seconds_and_to_who_comes_anew(proc: Path, tmp_path: Path) -> None:
    memory = OwnMemory(proc, tmp_path)
    assert memory.fresh(1000.0) is not None
    assert memory.fresh(1000.0 + EVERY_SECONDS - 0.1) is None
    assert memory.fresh(1000.0 + EVERY_SECONDS) is not None
    memory.again()
    assert memory.fresh(1001.0 + EVERY_SECONDS) is not None
