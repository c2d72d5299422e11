"""What was given back to the C library goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent import heap

PROGRAM = """
from agent import heap

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

heap.settle()
begin = resident()
small = [bytes(8_000) for _ in range(4_000)]
small = [each for number, each in enumerate(small) if number % 4 == 0]
holes = resident()
heap.trim()
print(begin, holes, resident())
"""


@pytest.mark.skipif(not hasattr(heap._C, "malloc_trim"), reason="a C library without holes to trim")
def test_holes_go_back() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    begin, holes, trimmed = map(int, done.stdout.split())
    there = holes - begin
    assert there > 20_000_000
    assert trimmed - begin < 0.6 * there, "three of four were given back, with whole pages in each hole"
