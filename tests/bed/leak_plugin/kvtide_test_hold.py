"""A vLLM plugin that holds a worker in the middle of a move of KV blocks, so that somebody can be killed just then.

It is idle unless ``KVTIDE_TEST_HOLD_DIR`` is set. While there is a file ``hold`` in that directory, the copies of
blocks that running requests hold stop when half of them are done: the worker writes ``held``, and goes on when ``hold``
is gone, after a minute at most. The engine core waits for it meanwhile.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

VARIABLE = "KVTIDE_TEST_HOLD_DIR"
POLL_SECONDS = 0.02
MOST_SECONDS = 60.0


class Holder:
    """In the place of a worker's copies, ``original``."""

    def __init__(self, directory: Path, original: Any) -> None:
        self._hold, self._held, self._original = directory / "hold", directory / "held", original

    def __call__(self, worker: Any, pairs: Any) -> Any:
        """Copy, and stop in the middle where that is asked for."""
        tables = [ids for state in worker.model_runner.requests.values() for ids in state.block_ids]
        named = {block for ids in tables for block in ids}
        half = sum(source in named for source, _ in pairs) // 2  # those that requests hold come first
        if not half or not self._hold.exists():
            return self._original(worker, pairs)
        self._original(worker, pairs[:half])
        self._held.write_text(f"{half} of {len(pairs)}")
        until = time.monotonic() + MOST_SECONDS
        while self._hold.exists() and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        return self._original(worker, pairs[half:])


def register() -> None:
    """Entry point ``vllm.general_plugins``: stand where blocks are copied, if asked to by the environment."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    try:
        from engine_hooks.worker import compaction
    except ImportError:
        return
    if not isinstance(compaction._copy, Holder):
        compaction._copy = Holder(Path(directory), compaction._copy)
