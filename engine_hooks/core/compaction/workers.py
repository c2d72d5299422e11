"""What is asked of all workers of an engine: all of them have done it, or it is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine_hooks.levers.base import RefusedError


class WorkersError(Exception):
    """A worker could not do it; the text says why."""


class Workers:
    """Calls functions of :mod:`engine_hooks.worker.compaction` on each worker, in the order of their ranks."""

    def __init__(self, executor: Any) -> None:
        if not hasattr(executor, "collective_rpc"):
            raise RefusedError("unsupported", f"{type(executor).__name__} has no collective_rpc")
        self._executor = executor

    def ask(self, function: Callable[..., dict[str, Any]], *args: Any) -> list[dict[str, Any]]:
        """Return all answers; raises :class:`WorkersError` where one is an error, and what the executor raises.

        No timeout: a late answer would be taken for that of the next call. A worker that dies ends the wait.
        """
        rows: list[Any] = self._executor.collective_rpc(function, args=args)
        for rank, row in enumerate(rows):
            if not isinstance(row, dict):
                raise WorkersError(f"worker {rank} does not answer: {str(row)[:40]}")
            if "error" in row:
                raise WorkersError(f"worker {rank}: {row['error']}")
        return rows
