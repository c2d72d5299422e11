"""The full audit: every block's reference count against what explains it, spread over engine steps.

One pass walks the holders (tables, deferred frees, pending copies, pins), then the blocks, in slices of bounded time.
The engine runs between slices, so a pass proves nothing about a block whose references changed meanwhile, and may
be wrong about one whose list was moved from one holder to another. Therefore:

- blocks that changed during the pass (the ledger tells) are not judged;
- an excess is reported when two passes in a row find the same one on a block that stood still through both. For a
  true orphan ``ref_cnt - expected`` is constant; a list that moved is seen wrongly at most once.

A pass that fits into one slice saw everything at one moment: it proves what it finds.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from engine_hooks.core.ledger import ReferenceLedger
from engine_hooks.core.pins import Block
from engine_hooks.core.pool_view import PoolView

SLICE_SECONDS = 0.0005
MAX_NAMED = 5_000  # more are counted by the net of references, but not named: sorting them out would take too long
MAX_SIGHTINGS = 4
_LINKS = ("prev_free_block", "next_free_block")
_CHUNK = 1024  # entries between two looks at the clock: about 0.1 ms

# What a pass saw in the tables: the request, and the ids of a stretch of its blocks. Arrays: lists would be walked by
# the garbage collector, 400,000 entries at a time, and that is a pause.
Trace = list[tuple[str, "array[int]"]]


class _Pass:
    """One walk and what it has found so far. ``excess``: block id -> references beyond what is explained.

    ``referenced``: blocks with a reference. ``astray``: blocks without one that are in no queue either, None where this
    vLLM's blocks do not tell. ``trace``: what the tables held when the walk came by.
    """

    def __init__(self, view: PoolView, started: float) -> None:
        self.started = started
        self.busy_seconds = 0.0
        self.slices_used = 0
        self.unnamed = 0
        self.excess: dict[int, int] = {}
        self.cached_idle = 0
        self.referenced = 0
        # A free block is linked to its neighbours in the free queue, or to the queue's own ends.
        self.astray: int | None = 0 if all(hasattr(view.pool.blocks[-1], name) for name in _LINKS) else None
        self.trace: Trace = []
        self.walk = self._walk(view)

    def _walk(self, view: PoolView) -> Iterator[None]:
        """Walk the holders, then the blocks, with a break every ``_CHUNK`` entries."""
        blocks = view.pool.blocks
        expected = [0] * len(blocks)
        seen = 0
        for owner, holder in view.holders():
            for start in range(0, len(holder), _CHUNK):
                ids = [block.block_id for block in holder[start : start + _CHUNK]]
                for i in ids:
                    expected[i] += 1
                if owner:
                    self.trace.append((owner, array("i", ids)))
                seen += len(ids)
                if seen >= _CHUNK:
                    seen = 0
                    yield
        for lent in view.borrowed():
            for block in lent:
                expected[block.block_id] -= 1
        for start in range(0, len(blocks), _CHUNK):
            self._compare(blocks[start : start + _CHUNK], expected[start : start + _CHUNK])
            yield

    def _compare(self, chunk: list[Block], expected: list[int]) -> None:
        references = [block.ref_cnt for block in chunk]
        unreferenced = references.count(0)
        self.referenced += len(references) - unreferenced
        if references != expected:
            for block, found, explained in zip(chunk, references, expected, strict=True):
                self.referenced -= found < 0
                if found != explained and not block.is_null:
                    if len(self.excess) >= MAX_NAMED:
                        self.unnamed += 1
                    else:
                        self.excess[block.block_id] = found - explained
        if unreferenced:
            # Comprehensions over slots: in generators, or by what C offers, the same looks take up to twice as long.
            idle = chunk if unreferenced == len(chunk) else [block for block in chunk if not block.ref_cnt]
            self.cached_idle += len([1 for block in idle if block._block_hash is not None])
            if self.astray is not None:
                unlinked = [block for block in idle if block.next_free_block is None]
                self.astray += sum(block.prev_free_block is None and not block.is_null for block in unlinked)
        if chunk[0].is_null and chunk[0].ref_cnt > 0:
            self.referenced -= 1  # the null block stands first; its count means nothing


@dataclass(frozen=True, slots=True)
class Finding:
    """What the audit knows now; nothing yet while ``passes`` is 0.

    ``excess``: block id -> unexplained references (> 0: orphaned, < 0: over-freed), confirmed by two passes.
    ``cached_idle`` was counted at ``finished`` (monotonic seconds). ``still``: nothing changed during the pass, so that
    its verdict covers every block. ``orphaned`` and ``over_freed`` count the blocks of ``excess``, ``net`` is its sum
    and ``leaked`` that of those above zero.
    ``unjudged``: blocks with an excess that changed, that a second pass must confirm, or that were too many to name.
    ``since``: when each block of ``excess`` was first seen with one; ``references``: its count at the end of the pass.
    ``lost``: blocks without a reference that are not in the free queue either. Counted where nothing changed during the
    pass; else by their links, as no block is on its way between two steps, and None where this vLLM's have none.
    """

    excess: dict[int, int]
    cached_idle: int
    finished: float
    still: bool
    passes: int
    unjudged: int = 0
    since: dict[int, float] = field(default_factory=dict)
    references: dict[int, int] = field(default_factory=dict)
    lost: int | None = None
    orphaned: int = field(init=False)
    over_freed: int = field(init=False)
    net: int = field(init=False)
    leaked: int = field(init=False)

    def __post_init__(self) -> None:
        # Asked for ten times a second: summed once.
        values = self.excess.values()
        object.__setattr__(self, "orphaned", sum(value > 0 for value in values))
        object.__setattr__(self, "over_freed", sum(value < 0 for value in values))
        object.__setattr__(self, "net", sum(values))
        object.__setattr__(self, "leaked", sum(value for value in values if value > 0))


class Audit:
    """Runs passes over one pool, a slice at a time, on the engine's own thread between two steps.

    ``min_period``: seconds between the starts of two passes that nothing asked for; stretched so that passes take
    at most ``duty`` of the thread's time. ``sightings``: blocks with an excess that was
    not there before, and what the tables held in the pass before: who held them last is in there.
    """

    def __init__(
        self,
        view: PoolView,
        ledger: ReferenceLedger,
        *,
        min_period: float = 1.0,
        duty: float = 0.0005,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view = view
        self._ledger = ledger
        self._min_period = min_period
        self._duty = duty
        self._clock = clock
        self._pass: _Pass | None = None
        self._suspects: dict[int, int] = {}
        self._suspected: dict[int, float] = {}
        self._next_start = 0.0
        self.sightings: deque[tuple[frozenset[int], Trace]] = deque(maxlen=MAX_SIGHTINGS)
        self._trace: Trace = []
        self.finding = Finding(excess={}, cached_idle=0, finished=0.0, still=False, passes=0)

    @property
    def wants_more(self) -> bool:
        """Whether a pass is under way or was asked for."""
        return self._pass is not None or self._next_start == 0.0

    @property
    def suspects(self) -> dict[int, int]:
        """Block id -> excess, of blocks that one more pass must confirm."""
        return self._suspects

    def request(self) -> None:
        """Ask for a pass now: the counted references do not match the tables, or the agent wants to know."""
        self._next_start = 0.0

    def restart(self) -> None:
        """Forget the pass under way, and what one more was to confirm: blocks were moved, or taken offline, meanwhile.

        What was found stands; blocks are not moved where anything was.
        """
        self._pass, self._suspects, self._suspected, self._trace = None, {}, {}, []
        self._ledger.changed = None
        self.request()

    def advance(self, seconds: float = SLICE_SECONDS) -> bool:
        """Work for about ``seconds`` if a pass is due or under way; return whether a pass ended."""
        begun = self._clock()
        found = self._pass
        if found is None:
            if begun < self._next_start:
                return False
            found = self._pass = _Pass(self._view, begun)
            if self._ledger.changed is None:
                self._ledger.changed = set()
        found.slices_used += 1
        try:
            for _ in found.walk:
                now = self._clock()
                if now - begun >= seconds:
                    found.busy_seconds += now - begun
                    return False
        except BaseException:
            # Half a walk proves nothing: the next pass starts anew.
            self._pass, self._suspects, self._suspected, self._ledger.changed = None, {}, {}, None
            raise
        now = self._clock()
        found.busy_seconds += now - begun
        self._finish(found, now)
        return True

    def complete(self) -> Finding:
        """Run two whole passes at once: for start-up, and for tests."""
        self.request()
        while not self.advance(seconds=1.0):
            pass
        self.request()
        while not self.advance(seconds=1.0):
            pass
        return self.finding

    def _finish(self, found: _Pass, now: float) -> None:
        changed = (self._ledger.changed or set()) if found.slices_used > 1 else set()
        known = self.finding.excess
        excess = {block: by for block, by in found.excess.items() if block not in changed}
        if found.slices_used == 1:
            confirmed = excess
        else:
            seen = {**known, **self._suspects}
            confirmed = {block: by for block, by in excess.items() if by in (seen.get(block), known.get(block))}
            # One that is known keeps its name while its block changes, as long as an excess is seen on it at all.
            confirmed |= {block: by for block, by in known.items() if block in changed and block in found.excess}
        pending = {block: by for block, by in excess.items() if block not in confirmed}
        first = {**self._suspected, **self.finding.since}
        self.finding = Finding(
            excess=confirmed,
            cached_idle=found.cached_idle,
            finished=now,
            still=not changed,
            passes=self.finding.passes + 1,
            unjudged=sum(block not in confirmed for block in found.excess) + found.unnamed,
            references={block: self._view.pool.blocks[block].ref_cnt for block in confirmed},
            since={block: first.get(block, found.started) for block in confirmed},
            lost=self._lost(found, still=not changed),
        )
        self._suspected = {block: first.get(block, found.started) for block in pending}
        if new := frozenset(excess).difference(known, self._suspects):
            self.sightings.append((new, self._trace))
        self._suspects = pending
        self._trace = found.trace
        # The pass that judges the suspects again must know of every change since this one ended.
        self._ledger.changed = set() if pending else None
        self._pass = None
        self._next_start = 0.0 if pending else found.started + max(self._min_period, found.busy_seconds / self._duty)

    def _lost(self, found: _Pass, *, still: bool) -> int | None:
        if still:
            return max(0, self._view.held() - found.referenced)
        return None if found.astray is None else max(0, found.astray - self._view.aside - self._view.offline)
