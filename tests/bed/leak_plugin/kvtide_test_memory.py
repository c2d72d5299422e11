"""A vLLM plugin that tells how much memory the hooks hold that they did not hold before, by Python's own tracing.

It is idle unless ``KVTIDE_TEST_MEMORY_DIR`` is set. A file ``begin`` in that directory starts the tracing in each
process of the engine; from then on each writes ``<pid>.json`` now and then: the bytes that were allocated on lines of
``engine_hooks`` since, and not freed. Tracing slows an engine down, so nothing that it does is to be timed.
"""

from __future__ import annotations

import json
import os
import threading
import time
import tracemalloc
from pathlib import Path

VARIABLE = "KVTIDE_TEST_MEMORY_DIR"
POLL_SECONDS = 1.0
EVERY_SECONDS = 20.0
OURS = tracemalloc.Filter(True, "*/engine_hooks/*")


def _watch(directory: Path) -> None:
    while not (directory / "begin").exists():
        time.sleep(POLL_SECONDS)
    tracemalloc.start(1)
    while True:
        time.sleep(EVERY_SECONDS)
        found = tracemalloc.take_snapshot().filter_traces([OURS]).statistics("lineno")
        told = {
            "at": time.monotonic(),
            "bytes": sum(each.size for each in found),
            "lines": {str(each.traceback): each.size for each in found[:10]},
        }
        partial = directory / f".{os.getpid()}"
        try:
            partial.write_text(json.dumps(told))
            partial.replace(directory / f"{os.getpid()}.json")
        except OSError:  # the directory is gone, and so is the test
            return


def _start(directory: Path) -> None:
    threading.Thread(target=_watch, args=(directory,), name="kvtide-test-memory", daemon=True).start()


def register() -> None:
    """Entry point ``vllm.general_plugins``: watch this process, and those that are forked from it, if asked to."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    _start(Path(directory))
    os.register_at_fork(after_in_child=lambda: _start(Path(directory)))
