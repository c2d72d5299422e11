"""The processes on a GPU, from the driver's three lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent.sources.device.nvml import FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, code_of
from agent.sources.device.state import GpuProcess, GpuProcesses

KEPT = 256  # of one GPU
_ORDER = "MCG"

Listed = list[tuple[int, int | None]]  # pid, bytes used or None for N/A


def compute(nvml: Any, handle: Any) -> Listed:
    """Processes with a compute context."""
    return _listed(nvml, handle, "Compute")


def graphics(nvml: Any, handle: Any) -> Listed:
    """Processes with a graphics context."""
    return _listed(nvml, handle, "Graphics")


def mps(nvml: Any, handle: Any) -> Listed:
    """Clients of the MPS server."""
    return _listed(nvml, handle, "MPSCompute")


def joined(lists: Iterable[tuple[str, Listed]]) -> GpuProcesses:
    """Put the lists together, each with its kind; a process in several has its memory once."""
    kinds: dict[int, set[str]] = {}
    used: dict[int, int | None] = {}
    for kind, listed in lists:
        for pid, size in listed:
            kinds.setdefault(pid, set()).add(kind)
            before = used.get(pid)
            used[pid] = before if size is None else max(size, before or 0)
    order = sorted(used, key=lambda pid: (used[pid] is not None, -(used[pid] or 0), pid))
    rows = [
        GpuProcess(pid=pid, used_bytes=used[pid], kind="+".join(sorted(kinds[pid], key=_ORDER.index)))
        for pid in order[:KEPT]
    ]
    return GpuProcesses(rows=tuple(rows), count=len(order))


def _listed(nvml: Any, handle: Any, kind: str) -> Listed:
    # By the names with a version: the binding turns the error of a driver that is too old into one without a number
    # where the plain name is used.
    newest = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v3")
    try:
        found = newest(handle)
    except nvml.NVMLError as error:
        if code_of(error) == FUNCTION_NOT_FOUND:  # before driver 510
            found = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v2")(handle)
        elif code_of(error) == INSUFFICIENT_SIZE:  # many have started between the binding's two calls
            found = newest(handle)
        else:
            raise
    return [(each.pid, each.usedGpuMemory) for each in found]
