"""What trimming does in a worker. An error is an answer: one that is raised there may end the engine."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def look(worker: Any) -> Row:
    """Return ``idle`` and ``head_room`` in bytes, or ``error``."""
    try:
        return _look(worker)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def trim(worker: Any, least: int) -> Row:
    """Give back what is idle beyond the head-room, if that is ``least`` bytes or more.

    Returns the reserved bytes ``before`` and ``after``, and of the head-room those that were ``lost``, or ``error``.
    """
    try:
        return _trim(worker, least)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def _look(worker: Any) -> Row:
    import torch

    room = getattr(worker, "peak_activation_memory", None)
    if not isinstance(room, int | float) or room < 0:
        return {"error": "this vLLM has not recorded what its profiling counted on"}
    device = worker.device
    reserved, allocated = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    return {"idle": reserved - allocated, "head_room": int(room)}


def _trim(worker: Any, least: int) -> Row:
    import torch

    found, device = _look(worker), worker.device
    if "error" in found:
        return found
    before = torch.cuda.memory_reserved(device)
    if found["idle"] - found["head_room"] < least:
        return {"before": before, "after": before, "lost": 0}
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    lost = 0
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    missing = max(0, found["head_room"] - idle)
    if missing:
        try:
            # Taken and let go at once: it stays reserved, in one piece.
            torch.empty(missing, dtype=torch.uint8, device=device)
        except torch.cuda.OutOfMemoryError:
            lost = missing  # a neighbour was quicker
    return {"before": before, "after": torch.cuda.memory_reserved(device), "lost": lost}
