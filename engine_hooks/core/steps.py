"""What is counted after each step, in one small object.

Nine steps in ten have nothing else to tell. A step has emptied the caches, so that what it costs is how many places in
memory it touches, and not what is done there: slots lie side by side, the attributes of a large object do not, and a
function that is called is one more place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sized
from typing import Any, Protocol

TIMED_STEPS = 17  # a prime: requests take blocks in patterns, and not always the same ones may be timed


class Timed(Protocol):
    """What is timed in some steps only."""

    timing: bool


class Queue(Protocol):
    """What knows how many blocks are free."""

    @property
    def num_free_blocks(self) -> int:
        """How many."""
        ...


class ByMethod:
    """Stands in for a pool's free queue where the pool's own method does more than to look at it."""

    __slots__ = ("_free",)

    def __init__(self, free: Callable[[], int]) -> None:
        self._free = free

    @property
    def num_free_blocks(self) -> int:
        """See :class:`Queue`."""
        return self._free()


class NoQueue:
    """Stands in for the free queue of an engine that has no pool, or one that does not tell."""

    num_free_blocks = 0


def queue_of(pool: Any) -> Queue:
    """Return what has a pool's number of free blocks: its free queue, if all that its method does is to ask that."""
    if not hasattr(pool, "get_num_free_blocks"):
        return NoQueue()
    method = getattr(type(pool), "get_num_free_blocks", None)
    if "get_num_free_blocks" in getattr(pool, "__dict__", ()) or not _is_plain(method):
        return ByMethod(pool.get_num_free_blocks)
    queue: Queue = pool.free_block_queue
    return queue


@functools.lru_cache(maxsize=8)  # asked ten times a second, and to look into code makes copies of it
def _is_plain(method: Callable[..., int] | None) -> bool:
    """Whether all that this method does to tell how many blocks are free is to ask the pool's queue."""
    code = getattr(method, "__code__", None)
    plain = _plain.__code__
    return code is not None and (code.co_code, code.co_names) == (plain.co_code, plain.co_names)


def _plain(self: Any) -> Any:
    return self.free_block_queue.num_free_blocks


class Steps:
    """An engine's steps so far: their ``number``, what they took (``seconds``), and what our own work after them took
    (``hook_seconds``).

    ``low``, ``high``: the range of the pool's free blocks, which ``queue`` knows, since it was last told. ``ledger``:
    what times how blocks are taken, in one step of seventeen, by ``turn``.

    ``due``: until then (perf_counter) a step is to be counted and nothing more, while ``requests``, those that the
    scheduler knows, are any; 0: the next one has more to do.
    """

    __slots__ = (
        "_pool", "due", "high", "hook_seconds", "ledger", "low", "number", "queue", "requests", "seconds", "turn",
    )  # fmt: skip

    def __init__(self, requests: Sized, pool: Any) -> None:
        self._pool = pool
        self.queue = queue_of(pool)
        self.low = self.high = int(self.queue.num_free_blocks)
        self.ledger: Timed | None = None
        self.number = self.turn = 0
        self.seconds = self.hook_seconds = 0.0
        self.due = 0.0
        self.requests = requests

    def observe(self) -> None:
        """Note the range of free blocks after a step: O(1). Who counts a step and does nothing more, does this too."""
        self.queue = queue_of(self._pool)  # no vLLM exchanges it; one that did would be seen here, ten times a second
        free = self.queue.num_free_blocks
        if free > self.high:
            self.high = free
        if free < self.low:
            self.low = free
        self.turn = (self.turn + 1) % TIMED_STEPS
        if self.turn < 2:
            self.time()

    def time(self) -> None:
        """Have blocks timed in the next step, or no more."""
        if self.ledger is not None:
            self.ledger.timing = not self.turn
