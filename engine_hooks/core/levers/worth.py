"""What a cached block is worth: whether anybody can, and is likely to, ask for it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.releases import Release, Releases
from engine_hooks.core.marks import Marks, marks_of
from engine_hooks.core.pins import Block
from engine_hooks.core.sessions import OVER_SECONDS

# The least worth first.
UNREACHABLE, DUPLICATE, IDLE, IDLE_PRIORITY, KEPT = range(5)


class Worth:
    """The state of one moment: sessions with a request now are not idle, whatever they did before.

    ``turns``: as many last requests of a session keep what they used until the session is over (600 s); a turn's blocks
    are all of its prefix, as none of them is of use without those before it. Requests without a session: by when
    their block was used last.
    """

    def __init__(
        self,
        context: LeverContext,
        releases: Releases | None,
        *,
        idle_seconds: float,
        turns: int,
        priority: frozenset[str],
    ) -> None:
        pool = context.view.pool
        self._find = pool.cached_block_hash_to_block.get_one_block
        # Blocks that are found by more hashes than their own, and those that somebody reads until they are reused.
        books = ("cached_block_hashes_by_block", "_reuse_watchers")
        self._special = {block for book in books for block in getattr(pool, book, ())}
        self._book, self._now = releases, context.now()
        self._idle, self._turns, self._priority = idle_seconds, turns, priority
        self._live = {marks_of(request) for request in context.scheduler.requests.values()}
        self._reachable: dict[Any, bool] = {}  # by hash
        self._kinds: dict[Release, int] = {}

    def classes(self, blocks: Iterable[Block]) -> list[int]:
        """Return the class of each of ``blocks``, which are free and cached; about a microsecond for each."""
        find, special, kinds = self._find, self._special, self._kinds
        found: list[int] = []
        for block in blocks:
            number, key = block.block_id, block.block_hash
            one = find(key)
            release = self._book.of(number, key) if self._book is not None else None
            if number in special:
                found.append(KEPT)
            elif one is not block:
                found.append(UNREACHABLE if one is None else DUPLICATE)
            elif release is None:
                found.append(KEPT)
            elif not self._is_reachable(number):
                found.append(UNREACHABLE)
            else:
                kind = kinds.get(release)
                if kind is None:
                    kind = kinds[release] = self._kind(release)
                found.append(kind)
        return found

    def _is_reachable(self, number: int) -> bool:
        """Whether all blocks before it are still cached: a lookup ends at the first that is not."""
        assert self._book is not None  # noqa: S101 - only such blocks are asked for
        parents, hashes, known = self._book.parents, self._book.hashes, self._reachable
        key, chain = parents[number], []
        answer: bool | None = None
        while answer is None:
            if key is None:
                answer = True  # the first block, or layers that need none before it
            elif (answer := known.get(key)) is None:
                chain.append(key)
                block = self._find(key)
                if block is None:
                    answer = False
                elif block.ref_cnt or block.block_id >= len(hashes) or hashes[block.block_id] != key:
                    answer = True  # one that a request holds has all before it held; of what isn't known, the best
                else:
                    key = parents[block.block_id]
        for one in chain:
            known[one] = answer
        return answer

    def _kind(self, release: Release) -> int:
        if not self._is_idle(release):
            return KEPT
        return IDLE_PRIORITY if release.marks.tenant in self._priority else IDLE

    def _is_idle(self, release: Release) -> bool:
        marks: Marks = release.marks
        if not marks.session:
            return self._now - release.at > self._idle
        if marks in self._live:
            return False
        turns = self._book.turns(marks) if self._book is not None else ()
        rested = self._now - (turns[-1].at if turns else release.at)
        if rested <= self._idle:
            return False
        kept = rested <= OVER_SECONDS and any(turn is release for turn in turns[len(turns) - self._turns :])
        return not (kept and self._turns)
