"""What the test bed removes from /dev/shm: what a killed engine of its own has left there, and nothing of others."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.shared_memory import FOLDER, mapped, remove

MAPS = """
import mmap, sys, time
files = [open(path, "r+b") for path in sys.argv[1:]]
maps = [mmap.mmap(file.fileno(), 0) for file in files]
print("here", flush=True)
time.sleep(600)
"""


@pytest.fixture
def files() -> Iterator[list[Path]]:
    found = [FOLDER / f"kvtide-test-{os.getpid()}-{name}" for name in ("left", "shared", "foreign")]
    for path in found:
        path.write_bytes(b"x" * mmap.PAGESIZE)
    yield found
    for path in found:
        path.unlink(missing_ok=True)


def test_what_a_killed_process_had_mapped_goes_unless_another_has_it(files: list[Path]) -> None:
    left, shared, foreign = files
    child = subprocess.Popen([sys.executable, "-c", MAPS, str(left), str(shared)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        before = mapped([child.pid])
        assert before == {left, shared}
        remove(before)
        assert left.exists(), "it is in use"
    finally:
        child.kill()
        child.wait()
        child.communicate()
    with shared.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        remove(before)
        assert [path.exists() for path in (left, shared, foreign)] == [False, True, True]
    remove(before)
    assert [path.exists() for path in files] == [False, False, True]


def test_a_process_that_is_gone_has_nothing_mapped() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert mapped([child.pid]) == set()
    remove({FOLDER / "kvtide-test-never-there"})
