"""What an engine computes a second time: tokens lost to a preemption, and tokens whose cached block was evicted.

Pure bookkeeping of prefills: no clock, no vLLM. Nothing here is done for a request that only decodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_EVICTED = 100_000


class EvictedHashes:
    """The last evicted block hashes, as integers: at least half of ``limit`` of them, and never more.

    Two sets that take turns: that is smaller and faster than to know their order one by one.
    """

    __slots__ = ("_half", "_old", "_young")

    def __init__(self, limit: int = MAX_EVICTED) -> None:
        self._half = max(1, limit // 2)
        self._young: set[int] = set()
        self._old: set[int] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def add(self, key: int) -> None:
        """Remember an eviction."""
        self._old.discard(key)
        self._young.add(key)
        if len(self._young) >= self._half:
            self._old, self._young = self._young, set()

    def take(self, key: int) -> bool:
        """Return whether ``key`` was evicted, and forget it: it is being computed again."""
        if key in self._young:
            self._young.remove(key)
            return True
        if key in self._old:
            self._old.remove(key)
            return True
        return False


class Chunk(NamedTuple):
    """Tokens of one step of a prefill: all, and those among them that had been computed before and lost."""

    tokens: int
    rebuilt_preempted: int
    rebuilt_evicted: int


class Prefill:
    """One request from its admission until its known tokens are computed.

    ``target``: tokens it had at its admission. ``mark``: of those, how many it had computed before a preemption. Tokens
    up to the mark count as lost to the preemption, whatever became of their blocks since; evictions count beyond it.
    """

    __slots__ = ("_mark", "_start", "_target")

    def __init__(self, target: int, mark: int = 0) -> None:
        self._target = target
        # The last token was sampled and not computed yet. With speculation, computed tokens count drafts beyond it.
        self._mark = min(mark, target - 1)
        self._start = -1

    def advance(
        self, computed: int, scheduled: int, hashes: Sequence[bytes], block_tokens: int, evicted: EvictedHashes
    ) -> Chunk:
        """Take in a step that computes ``scheduled`` tokens, after which ``computed`` are.

        ``hashes``: of the request's full blocks of ``block_tokens`` tokens each. A block counts as evicted in the step
        that fills it, with those of its tokens that were computed since the admission.
        """
        begin, end = computed - scheduled, min(computed, self._target)
        if self._start < 0 or begin < self._start:
            # What lies before came out of the prefix cache, or from another node: less of it when that load failed.
            self._start = begin
        evicted_tokens = 0
        if len(evicted):
            floor = max(self._start, self._mark)
            for block in range(max(begin, self._mark) // block_tokens, min(end // block_tokens, len(hashes))):
                if evicted.take(hash(hashes[block])):
                    evicted_tokens += (block + 1) * block_tokens - max(block * block_tokens, floor)
        return Chunk(max(0, end - begin), max(0, min(end, self._mark) - begin), evicted_tokens)

    def done(self, computed: int) -> bool:
        """Return whether all tokens that were known at the admission are computed."""
        return computed >= self._target
