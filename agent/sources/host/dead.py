"""Device memory whose process is gone: the driver, or somebody who shares the memory, still holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from agent.sources.host.inputs import Held
from agent.sources.host.state import DeadHolder

LEAST_BYTES = 4 * 1024**3


class DeadScan(NamedTuple):
    """``suspects``: (GPU, pid) of this scan, for the next; ``found``: those that were suspects before, too."""

    suspects: frozenset[tuple[str, int]]
    found: tuple[DeadHolder, ...]


def scan(
    before: frozenset[tuple[str, int]], held: Mapping[str, Sequence[Held]], alive: Callable[[int], bool]
) -> DeadScan:
    """Look for pids that are not alive and hold at least ``LEAST_BYTES`` of a GPU; found at the second scan in a row.

    One scan is not enough: between the reading of the GPU and ours a process may simply have ended.
    """
    dead = [
        DeadHolder(gpu=gpu, pid=row.pid, used_bytes=row.used_bytes)
        for gpu, rows in held.items()
        for row in rows
        if row.used_bytes >= LEAST_BYTES and not alive(row.pid)
    ]
    found = tuple(sorted((row for row in dead if (row.gpu, row.pid) in before), key=lambda row: (row.gpu, row.pid)))
    return DeadScan(frozenset((row.gpu, row.pid) for row in dead), found)
