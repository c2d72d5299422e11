"""A stream is as large in memory when it begins as after hours of writing: an agent must not seem to leak.

In a process of its own: here what others have given back would be used again, and nothing would seem to grow.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PIECES, PIECE_BYTES = 80, 50_000  # three windows, and more
MOST_KIB = 512  # half a window
PROGRAM = f"""
import mmap, random
from agent.bundle import packing

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * mmap.PAGESIZE // 1024

data = random.Random(1).randbytes({PIECE_BYTES})
packer = packing.packer(packing.ZSTD)
packer.pack(data[:100])
before = resident()
for number in range({PIECES}):
    packer.pack(data[number:] + data[:number])
print(resident() - before)
"""


def test_what_is_packed_does_not_make_the_agent_grow() -> None:
    pytest.importorskip("zstandard")
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(found.stdout) < MOST_KIB
