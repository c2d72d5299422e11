"""A vLLM plugin that tells how much memory the hooks hold, and how much of it their books, by Python's own tracing.

It is idle unless ``KVTIDE_TEST_MEMORY_DIR`` is set. Each process of the engine writes ``<pid>.json`` there now and
then: ``bytes`` that were allocated on lines of ``engine_hooks`` since it was loaded, and not freed; ``books``: those of
them that are in books which fill up to a bound (ended requests, evicted hashes, sessions at rest). Tracing slows an
engine down, so nothing that it does is to be timed.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

VARIABLE = "KVTIDE_TEST_MEMORY_DIR"
EVERY_SECONDS = 20.0
PART = "/engine_hooks/"
OURS = tracemalloc.Filter(True, f"*{PART}*")
# What has books: the attributes that are.
BOOKS = {
    ("engine_hooks.core.endings", "Endings"): ("by_request", "caught"),
    ("engine_hooks.core.rebuild", "EvictedHashes"): ("_young", "_old"),
    ("engine_hooks.core.sessions", "SessionBook"): ("_idle",),
}
OWNERS: list[tuple[Any, tuple[str, ...]]] = []  # of this process, with the names of their books


def note_owners() -> None:
    """From now on remember who has books.

    They are not looked for by ``gc.get_objects``: that returns tuples, too, which another thread is still making, and
    as long as it has them, that thread gets a SystemError. It was the end of an engine.
    """
    for (module, name), attributes in BOOKS.items():
        kind = getattr(importlib.import_module(module), name)
        kind.__init__ = _noting(kind.__init__, attributes)


def _noting(original: Callable[..., None], attributes: tuple[str, ...]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        OWNERS.append((self, attributes))

    return init


def books() -> Iterator[Any]:
    """Yield the books of this process."""
    for owner, attributes in OWNERS:
        for name in attributes:
            yield getattr(owner, name)


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
    note_owners()
    _start(Path(directory))
    os.register_at_fork(after_in_child=lambda: _start(Path(directory)))
