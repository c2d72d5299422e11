"""What a cached block is worth: whether anybody can, and is likely to, ask for it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.releases import Release, Releases
from engine_hooks.core.levers.reuse import Reuse
from engine_hooks.core.marks import Marks, marks_of
from engine_hooks.core.pins import Block
from engine_hooks.core.sessions import OVER_SECONDS

# The least worth first.
UNREACHABLE, DUPLICATE, NEVER_HIT, IDLE, IDLE_PRIORITY, KEPT = range(6)


class Worth:
    """The state of one moment: sessions with a request now are not idle, whatever they did before.

    ``turns``: as many last requests of a session keep what they used until the session is over (600 s); a turn's blocks
    are all of its prefix, as none of them is of use without those before it. Requests without a session: by when
    their block was used last. One that no other request has found since it was cached is ``NEVER_HIT`` once it is older
    than ``never_hit_seconds``, or, where that is None, than ``reuse`` says of its tenant. Not so without either, and of
    ``priority`` tenants.
    """

    def __init__(
        self,
        context: LeverContext,
        releases: Releases | None,
        *,
        idle_seconds: float,
        turns: int,
        priority: frozenset[str],
        never_hit_seconds: float | None = None,
        reuse: Reuse | None = None,
    ) -> None:
        pool = context.view.pool
        self._find = pool.cached_block_hash_to_block.get_one_block
        # Blocks that are found by more hashes than their own, and those that somebody reads until they are reused.
        books = ("cached_block_hashes_by_block", "_reuse_watchers")
        self._special = {block for book in books for block in getattr(pool, book, ())}
        self._book, self._now = releases, context.now()
        self._idle, self._turns, self._priority = idle_seconds, turns, priority
        self._never_hit, self._reuse = never_hit_seconds, reuse
        self._live = {marks_of(request) for request in context.scheduler.requests.values()}
        self._reachable: dict[Any, bool] = {}  # by hash
        self._ages: dict[str, float | None] = {}  # by tenant
        self._kinds: dict[Release, tuple[int, int]] = {}  # of blocks that were found, and of those never found

    def classes(self, blocks: Iterable[Block]) -> list[int]:
        """Return the class of each of ``blocks``, which are free and cached; about a microsecond for each."""
        find, special, kinds = self._find, self._special, self._kinds
        hits = self._book.hits if self._book is not None else b""
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
                pair = kinds.get(release)
                if pair is None:
                    pair = kinds[release] = self._pair(release)
                found.append(pair[not hits[number]])
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

    def _pair(self, release: Release) -> tuple[int, int]:
        """The classes of what was found again, and of what was not, of all that this request was the last to use."""
        priority, idle = release.marks.tenant in self._priority, self._is_idle(release)
        kind = KEPT if not idle else IDLE_PRIORITY if priority else IDLE
        if priority or release.marks.session:
            return kind, kind
        age = self._age(release.marks.tenant)
        return kind, NEVER_HIT if age is not None and self._now - release.at > age else kind

    def _age(self, tenant: str) -> float | None:
        """From which age on a block that nobody has asked for is not worth waiting for."""
        if self._never_hit is not None or self._reuse is None:
            return self._never_hit
        if tenant not in self._ages:
            self._ages[tenant] = self._reuse.age(tenant, self._now)
        return self._ages[tenant]

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
