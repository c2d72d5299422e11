"""A vLLM plugin that leaks KV blocks on demand, where the real bugs of that kind leak them.

It is idle unless ``KVTIDE_CHAOS_DIR`` is set in the engine's environment. A file ``arm`` in that directory (see
``kv_blocks``) makes it draw a number N between two bounds, which nobody is told, and withhold N blocks from the frees
of the requests that finish next: they leave their request's block table and never go back to the pool. They keep their
reference and have no owner. Nothing of the block pool is touched, so a counter in the pool's methods sees nothing
unusual. When all N are gone it writes ``planted.json`` and removes ``arm``. It never gives a block back: only the
engine's restart does, or whoever reclaims orphans.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

VARIABLE = "KVTIDE_CHAOS_DIR"
MARK = "_kvtide_chaos"


class Leaker:
    """Withholds blocks from finishing requests while armed. Runs on the engine's thread only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.arm_path = directory / "arm"
        self.wanted = 0
        self.shared = False
        self.per_second: float | None = None
        self.armed_at: dict[str, float] = {}
        self.block_ids: list[int] = []

    def before_free(self, manager: Any, request: Any) -> None:
        """Withhold what is due of the blocks that ``request`` is about to give back; never raises."""
        try:
            if not os.path.exists(self.arm_path):  # one stat for each free: the price of orders without a thread
                self._forget()
                return
            if self.wanted == 0:
                self._read_arm()
            self._take(manager, request.request_id)
            if len(self.block_ids) >= self.wanted:
                self._report()
        except Exception as error:  # The engine must live on, whatever is wrong with the order.
            self._disarm()
            self._write("error.json", {"error": repr(error)})

    def _read_arm(self) -> None:
        order = json.loads(self.arm_path.read_text())
        low, high = int(order["min"]), int(order["max"])
        self.wanted = low + secrets.randbelow(high - low + 1)
        self.shared = bool(order.get("shared", False))
        self.per_second = order.get("per_second")
        self.armed_at = _now()
        self.block_ids = []

    def _due(self) -> int:
        if self.per_second is None:
            return self.wanted
        elapsed = time.monotonic() - self.armed_at["monotonic"]
        return min(self.wanted, int(elapsed * self.per_second))

    def _take(self, manager: Any, request_id: str) -> None:
        due = self._due()
        before = len(self.block_ids)
        for group in manager.coordinator.single_type_managers:
            held = group.req_to_blocks.get(request_id)
            if not held:
                continue
            kept = []
            # From the end: the tail is what a request shares with nobody.
            for block in reversed(held):
                free_to_take = not block.is_null and (self.shared or block.ref_cnt == 1)
                if free_to_take and len(self.block_ids) < due:
                    self.block_ids.append(block.block_id)
                else:
                    kept.append(block)
            # In place, like vLLM's own changes: others may hold this very list.
            held[:] = kept[::-1]
        if self.per_second is not None and len(self.block_ids) > before:
            self._write("progress.json", self._told())

    def _told(self) -> dict[str, Any]:
        return {
            "n": len(self.block_ids),
            "block_ids": sorted(self.block_ids),
            "armed_at": self.armed_at,
            "complete_at": _now(),
            "pid": os.getpid(),
        }

    def _report(self) -> None:
        planted = self._told()
        self._disarm()
        self._write("planted.json", planted)

    def _disarm(self) -> None:
        self._forget()
        self.arm_path.unlink(missing_ok=True)

    def _forget(self) -> None:
        self.wanted = 0
        self.block_ids = []

    def _write(self, name: str, value: dict[str, Any]) -> None:
        # Renamed into place: whoever waits for the file reads all of it or nothing.
        partial = self.directory / f".{name}.{os.getpid()}"
        try:
            partial.write_text(json.dumps(value))
            partial.replace(self.directory / name)
        except OSError:
            return


def _now() -> dict[str, float]:
    # Both clocks: durations on one machine come from the first, log lines are matched by the second.
    return {"monotonic": time.monotonic(), "unix": time.time()}


def _wrap(owner: type, name: str, leaker: Leaker) -> None:
    original = getattr(owner, name)
    if getattr(original, MARK, False):
        return

    @functools.wraps(original)
    def wrapper(self: Any, request: Any) -> Any:
        leaker.before_free(self, request)
        return original(self, request)

    setattr(wrapper, MARK, True)
    setattr(owner, name, wrapper)


def register() -> None:
    """Entry point ``vllm.general_plugins``: wrap both ways out of a block table, if asked to by the environment."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    try:
        from vllm.v1.core.kv_cache_manager import KVCacheManager
    except ImportError:
        return
    leaker = Leaker(Path(directory))
    # pop_blocks_for_free (0.24 and later) is the way of a free that is put off until a step in flight has ended.
    for name in ("free", "pop_blocks_for_free"):
        if hasattr(KVCacheManager, name):
            _wrap(KVCacheManager, name, leaker)
