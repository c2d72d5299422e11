"""What a worker says of its device's memory before and after it sleeps."""

from __future__ import annotations

from typing import Any


def free(worker: Any) -> int | None:
    """Return the bytes that are free on the worker's device, whoever had them; None where it can't tell.

    An error is an answer: one that is raised there may end the engine.
    """
    try:
        import torch

        return int(torch.cuda.mem_get_info(worker.device)[0])
    except Exception:
        return None
