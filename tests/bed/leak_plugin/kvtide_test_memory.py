"""A vLLM plugin that tells how much memory the hooks hold, and how much of it their books, by Python's own tracing.

It is idle unless ``KVTIDE_TEST_MEMORY_DIR`` is set. Each process of the engine writes ``<pid>.json`` there now and
then: ``bytes`` that were allocated on lines of ``engine_hooks`` since it was loaded, and not freed; ``books``: those of
them that are in books which fill up to a bound (ended requests, evicted hashes, sessions at rest). Tracing slows an
engine down, so nothing that it does is to be timed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "KVTIDE_TEST_MEMORY_DIR"
EVERY_SECONDS = 20.0
PART = "/engine_hooks/"
OURS = tracemalloc.Filter(True, f"*{PART}*")
# By class of engine_hooks: the attributes that are books.
BOOKS = {"Endings": ("by_request", "caught"), "EvictedHashes": ("_young", "_old"), "SessionBook": ("_idle",)}


def books() -> Iterator[Any]:
    """Yield the books of this process."""
    for each in gc.get_objects():
        kind = type(each)
        if kind.__name__ in BOOKS and kind.__module__.startswith("engine_hooks."):
            for name in BOOKS[kind.__name__]:
                yield getattr(each, name)


def held_in(roots: Iterator[Any]) -> int:
    """Return the bytes of ``roots`` and of what is below them, as far as it was allocated on lines of the hooks."""
    total, seen, left = 0, set(), list(roots)
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        trace = tracemalloc.get_object_traceback(each)
        if trace is not None and PART in trace[0].filename:
            total += sys.getsizeof(each)
            if not isinstance(each, type):
                left += gc.get_referents(each)
    return total


def _told() -> dict[str, Any]:
    found = tracemalloc.take_snapshot().filter_traces([OURS]).statistics("lineno")
    return {
        "at": time.monotonic(),
        "bytes": sum(each.size for each in found),
        "books": held_in(books()),
        "lines": {str(each.traceback): each.size for each in found[:10]},
    }


def _watch(directory: Path) -> None:
    while True:
        time.sleep(EVERY_SECONDS)
        told = _told()
        partial = directory / f".{os.getpid()}"
        try:
            partial.write_text(json.dumps(told))
            partial.replace(directory / f"{os.getpid()}.json")
        except OSError:  # the directory is gone, and so is the test
            return


def _start(directory: Path) -> None:
    if not tracemalloc.is_tracing():
        tracemalloc.start(1)
    threading.Thread(target=_watch, args=(directory,), name="kvtide-test-memory", daemon=True).start()


def register() -> None:
    """Entry point ``vllm.general_plugins``: watch this process, and those that are forked from it, if asked to."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    _start(Path(directory))
    os.register_at_fork(after_in_child=lambda: _start(Path(directory)))
