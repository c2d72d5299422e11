"""Give the driver back what the workers' allocator keeps beyond the head-room that profiling counted on."""

from __future__ import annotations

from typing import Any

from engine_hooks.core.levers.arguments import need, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.trim_worker import look, trim
from engine_hooks.levers.base import Done, RefusedError, whole
from engine_hooks.levers.orders import Arguments

MIB = 1 << 20


class Trim:
    """Argument: ``bytes`` that a worker must have to spare, or it is not worth a step's time (64 MiB).

    vLLM has sized its KV cache so that the activations that it saw when profiling fit beside it. What is reserved for
    them and idle is theirs: given to the driver, a neighbour takes it, and the next long prompt fails. So each worker
    keeps as much, and only what is idle beyond goes. All workers are asked first. Blocks one step. Frees no KV block.
    """

    NAME = "trim"

    def __init__(self, context: LeverContext) -> None:
        config: Any = getattr(context.engine, "vllm_config", None)
        device = getattr(getattr(config, "device_config", None), "device_type", None)
        if device != "cuda":
            raise RefusedError("unsupported", f"no device allocator: the engine runs on {device}")
        self._executor: Any = getattr(context.engine, "model_executor", None)
        need(self._executor, "collective_rpc")

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return the idle bytes of all workers, and those to spare. Asks the workers."""
        only(arguments, "bytes")
        least = whole(arguments, "bytes", MIB, 1 << 50, 64 * MIB)
        found = self._ask(look)
        spare = [row["idle"] - row["head_room"] for row in found]
        if max(spare) < least:
            raise RefusedError(
                "unsafe", f"at most {max(spare)} bytes are idle beyond the head-room that profiling counted on"
            )
        return {
            "workers": len(found),
            "idle_bytes": sum(row["idle"] for row in found),
            "head_room_bytes": sum(row["head_room"] for row in found),
            "spare_bytes": sum(max(0, one) for one in spare),
        }

    def apply(self, arguments: Arguments) -> Done:
        """Trim every worker that has enough to spare; there is no way back."""
        self.would(arguments)
        least = whole(arguments, "bytes", MIB, 1 << 50, 64 * MIB)
        found = self._ask(trim, least)
        before = sum(row["before"] for row in found)
        after = sum(row["after"] for row in found)
        return Done(
            {
                "before_reserved_bytes": before,
                "after_reserved_bytes": after,
                "bytes": before - after,
                "head_room_lost_bytes": sum(row["lost"] for row in found),
            }
        )

    def _ask(self, function: Any, *args: Any) -> list[dict[str, int]]:
        """Call ``function`` on each worker. No timeout: a late answer would be taken for that of the next call."""
        rows: list[dict[str, Any]] = self._executor.collective_rpc(function, args=args)
        for row in rows:
            if "error" in row:
                raise RefusedError("unsafe", str(row["error"]))
        return rows
