"""What compaction does in a worker. An error is an answer: one that is raised there may end the engine.

Between two steps, with nothing in flight, the engine core has blocks copied, then tables rewritten. Pages of blocks
that no table names any more are given back by a thread, which :func:`touch` stops before they are used again.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine_hooks.worker.pages import (
    Span,
    all_pages,
    available_bytes,
    release_pages,
    resident_bytes,
    touch_pages,
)

Row = dict[str, Any]
Pairs = Sequence[tuple[int, int]]
Ranges = Sequence[tuple[int, int]]

NOT_HERE = "this device's memory can't be given back in part"


class _Tail:
    """One worker's thread that gives pages back, or has them there again. ``released``: bytes that it has seen go."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.thread: threading.Thread | None = None
        self.released = 0
        self.error = ""

    def begin(self, change: Callable[[Span, threading.Event], bool], spans: Sequence[Span]) -> None:
        self.error = ""
        self.thread = threading.Thread(target=self._run, args=(change, spans), name="kvtide-pages", daemon=True)
        self.thread.start()

    def _run(self, change: Callable[[Span, threading.Event], bool], spans: Sequence[Span]) -> None:
        try:
            for span in spans:
                reached = all_pages(span)
                before = resident_bytes(reached)
                done = change(span, self.stop)
                # What was never there is not given back, nor taken anew, though it is touched like all else.
                self.released = max(0, self.released + before - resident_bytes(reached))
                if not done:
                    return
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"[:200]

    def end(self) -> None:
        """Stop it, within the time that one chunk of pages takes."""
        self.stop.set()
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        self.stop.clear()


_tails: weakref.WeakKeyDictionary[Any, _Tail] = weakref.WeakKeyDictionary()


def look(worker: Any) -> Row:
    """Return ``blocks``, ``block_bytes`` and ``releases`` (what hinders it, empty where pages can go), or ``error``."""
    return _answer(partial(_look, worker))


def copy(worker: Any, pairs: Pairs) -> Row:
    """Copy each block onto another, with vLLM's own helper; tables stay as they are.

    Returns ``seconds``, what it took of this thread's time, or ``error``.
    """
    return _answer(partial(_copy, worker, pairs))


def rewrite(worker: Any, pairs: Pairs) -> Row:
    """Have all tables name the second of each pair where they named the first. Returns ``lists``, or ``error``."""
    return _answer(partial(_rewrite, worker, pairs))


def release(worker: Any, ranges: Ranges) -> Row:
    """Begin to give the pages of these blocks back, on a thread; returns at once."""
    return _answer(partial(_release, worker, ranges))


def touch(worker: Any, ranges: Ranges, *, wait: bool) -> Row:
    """Begin to have these blocks' pages there again, and ``wait`` for it; ``error`` where there is no memory."""
    return _answer(partial(_touch, worker, ranges, wait))


def progress(worker: Any) -> Row:
    """Return the ``bytes`` that are given back now, whether what was begun is ``over``, or ``error``."""
    return _answer(partial(_progress, worker))


def _answer(work: Callable[[], Row]) -> Row:
    try:
        return work()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def _tables(worker: Any) -> tuple[Any, Any]:
    """The runner and its one block table; raises where its tables are kept in another way."""
    runner = worker.model_runner
    if not hasattr(runner, "requests") or not hasattr(runner, "input_batch"):
        raise LookupError(f"{type(runner).__module__}.{type(runner).__name__} keeps its block tables in another way")
    (table,) = runner.input_batch.block_table.block_tables
    if getattr(table, "use_hybrid_blocks", False):
        raise LookupError("its kernels' blocks are smaller than its pool's")
    _ = table.block_table.np, table.num_blocks_per_row
    return runner, table


def _look(worker: Any) -> Row:
    from vllm.v1.worker.utils import copy_kv_cache_blocks_inplace  # noqa: F401 - whether it is there

    runner, _table = _tables(worker)
    blocks = int(runner.kv_cache_config.num_blocks)
    caches = list(runner.kv_caches)
    if not caches or not all(hasattr(cache, "untyped_storage") for cache in caches):
        raise LookupError("its layers keep more than one tensor of blocks")
    storages = {cache.untyped_storage().data_ptr(): cache.untyped_storage().nbytes() for cache in caches}
    hinders = ""
    try:
        _spans(worker, ((blocks - 1, blocks),))
    except LookupError as error:
        hinders = str(error)
    return {"blocks": blocks, "block_bytes": sum(storages.values()) // blocks, "releases": hinders}


def _copy(worker: Any, pairs: Pairs) -> Row:
    from vllm.v1.worker.utils import copy_kv_cache_blocks_inplace

    runner, _table = _tables(worker)
    blocks = int(runner.kv_cache_config.num_blocks)
    _check(pairs, blocks)
    began = time.thread_time()
    copy_kv_cache_blocks_inplace(runner.kv_caches, blocks, list(pairs))
    return {"seconds": time.thread_time() - began}


def _check(pairs: Pairs, blocks: int) -> None:
    sources, destinations = {source for source, _ in pairs}, {destination for _, destination in pairs}
    if len(sources) != len(pairs) or len(destinations) != len(pairs) or sources & destinations:
        raise ValueError("a block comes twice")
    if not all(0 < block < blocks for block in sources | destinations):
        raise ValueError("there is no such block")


def _rewrite(worker: Any, pairs: Pairs) -> Row:
    import numpy as np

    runner, table = _tables(worker)
    moved = dict(pairs)
    # All is made before anything is changed. A list is changed in place: the batch may hold the same one.
    lists = [ids for state in runner.requests.values() for ids in state.block_ids if not moved.keys().isdisjoint(ids)]
    fresh = [[moved.get(block, block) for block in ids] for ids in lists]
    array = table.block_table.np
    names = np.arange(max(int(runner.kv_cache_config.num_blocks), int(array.max(initial=0)) + 1), dtype=array.dtype)
    names[list(moved)] = list(moved.values())
    rows = [(row, int(count)) for row, count in enumerate(table.num_blocks_per_row) if count]
    changed = [(row, count, names[array[row, :count]]) for row, count in rows]
    for ids, new in zip(lists, fresh, strict=True):
        ids[:] = new
    for row, count, new in changed:
        array[row, :count] = new
    return {"lists": len(lists)}


def _spans(worker: Any, ranges: Ranges) -> list[Span]:
    """The stretches of memory (address, bytes) that these blocks alone fill; raises where that can't be told."""
    if worker.device.type != "cpu":
        raise LookupError(NOT_HERE)
    runner, _table = _tables(worker)
    blocks = int(runner.kv_cache_config.num_blocks)
    bases: dict[int, int] = {}  # where the blocks of a tensor begin, and how far they are apart
    for cache in runner.kv_caches:
        parts, rest = divmod(cache.shape[0], blocks)
        size = cache.element_size()
        stride = cache.stride(0) * size * parts
        storage = cache.untyped_storage()
        if rest or not parts:
            raise LookupError("its tensors are not divided into the pool's blocks")
        if storage.nbytes() == blocks * stride:
            bases[storage.data_ptr()] = stride
            continue
        # The tensor's own stretch is its blocks' alone only if each fills it without gaps.
        inner = size + sum((cache.shape[d] - 1) * cache.stride(d) * size for d in range(1, cache.dim()))
        if inner != cache.stride(0) * size:
            raise LookupError("a block's bytes lie between those of other blocks")
        bases[cache.data_ptr()] = stride
    return [(base + first * stride, (end - first) * stride) for base, stride in bases.items() for first, end in ranges]


def _release(worker: Any, ranges: Ranges) -> Row:
    tail = _tails.setdefault(worker, _Tail())
    tail.end()
    spans = _spans(worker, ranges)
    tail.begin(release_pages, spans)
    return {"bytes": sum(size for _, size in spans)}


def _progress(worker: Any) -> Row:
    tail = _tails.get(worker)
    if tail is None:
        return {"bytes": 0, "over": True}
    if tail.error:
        raise RuntimeError(tail.error)
    return {"bytes": tail.released, "over": tail.thread is None or not tail.thread.is_alive()}


def _touch(worker: Any, ranges: Ranges, wait: bool) -> Row:
    tail = _tails.get(worker)
    if tail is None:
        return {"bytes": 0, "over": True}  # nothing was given back
    tail.end()
    spans = _spans(worker, ranges)
    missing = sum(size - resident_bytes((start, size)) for start, size in map(all_pages, spans))
    left = available_bytes()
    if left is not None and missing > left:
        raise MemoryError(f"{missing} bytes are needed, {left} are to be had")
    tail.begin(touch_pages, spans)
    if wait and tail.thread is not None:
        tail.thread.join()
    return _progress(worker)
