"""The bpftrace program: what is timed, for whom, and how it is counted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Allocations and what gives memory back, in libcuda and in the runtime above it; which of them a library has is asked.
CALLS = (
    "cuMemAlloc_v2",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemCreate",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemRelease",
    "cudaMalloc",
    "cudaMallocAsync",
    "cudaMallocFromPoolAsync",
    "cudaFree",
    "cudaFreeAsync",
)
# Upper bounds. The thresholds of allocation latency, 50 ms and 500 ms, are among them, so that none is guessed at.
NANOSECONDS = (
    1_000,
    10_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
)
BOUNDS = tuple(each / 1e9 for each in NANOSECONDS)
# A path goes into the program's text, and what processes have mapped is their own choice.
PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+@=~-]{1,1000}")

# $d: nanoseconds; the bucket's number is how many bounds it exceeds. @f counts what returned an error.
_PROBES = """\
uprobe:{path}:{name} /{pids}/ {{ @b[tid, {call}] = nsecs; }}
uretprobe:{path}:{name} /@b[tid, {call}]/ {{
  $d = nsecs - @b[tid, {call}]; delete(@b[tid, {call}]);
  @h[{call}, pid, {bucket}] = count(); @s[{call}, pid] = sum($d);
  if ((int32)retval != 0) {{ @f[{call}, pid] = count(); }}
}}
"""
# @now comes last: with it a second's numbers are complete, and we hear that it lives.
_REST = """\
interval:s:1 { @now = nsecs; print(@h); print(@s); print(@f); print(@now); }
END { clear(@b); clear(@h); clear(@s); clear(@f); clear(@now); }
"""


class Probe(NamedTuple):
    """Functions of one library file. ``path`` is as the agent reaches it, plain by ``PLAIN_PATH``."""

    path: str
    calls: tuple[str, ...]


def program(probes: Iterable[Probe], pids: Sequence[int]) -> str:
    """Return the program's text: it times ``probes`` in processes ``pids``, and prints sums once a second."""
    bucket = " + ".join(f"($d > {bound})" for bound in NANOSECONDS)
    only = " || ".join(f"pid == {pid}" for pid in pids)
    parts = [
        _PROBES.format(path=path, name=name, call=CALLS.index(name), pids=only, bucket=bucket)
        for path, calls in probes
        for name in calls
    ]
    return "".join([*parts, _REST])


def calls_in(listing: str) -> tuple[str, ...]:
    """Return those of ``CALLS`` that ``bpftrace -l uprobe:PATH:cu*`` names."""
    names = {line.strip().rpartition(":")[2] for line in listing.splitlines()}
    return tuple(call for call in CALLS if call in names)
