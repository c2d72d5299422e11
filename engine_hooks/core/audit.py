"""The full audit: every block's reference count against what the tables explain, spread over engine steps.

One pass walks the holders (tables, deferred frees, pending copies), then the blocks, in slices of bounded time.
The engine runs between slices, so a pass proves nothing about a block whose references changed meanwhile, and may
be wrong about one whose list was moved from one holder to another. Therefore:

- blocks that changed during the pass (the ledger tells) are not judged;
- an excess is reported when two passes in a row find the same one on a block that stood still through both. For a
  true orphan ``ref_cnt - expected`` is constant; a list that moved is seen wrongly at most once.

A pass that fits into one slice saw everything at one moment: it proves what it finds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from engine_hooks.core.ledger import ReferenceLedger
from engine_hooks.core.view import SchedulerView

SLICE_SECONDS = 0.0005
MAX_NAMED = 5_000  # more are counted by the net of references, but not named: sorting them out would take too long
_CHUNK = 1024  # entries between two looks at the clock: about 0.1 ms


class _Pass:
    """One walk and what it has found so far. ``excess``: block id -> references beyond what is explained."""

    def __init__(self, view: SchedulerView, started: float) -> None:
        self.started = started
        self.busy_seconds = 0.0
        self.slices_used = 0
        self.unnamed = 0
        self.excess: dict[int, int] = {}
        self.cached_idle = 0
        self.walk = self._walk(view)

    def _walk(self, view: SchedulerView) -> Iterator[None]:
        """Walk the holders, then the blocks, with a break every ``_CHUNK`` entries."""
        blocks = view.pool.blocks
        expected = [0] * len(blocks)
        seen = 0
        for holder in view.holders():
            for start in range(0, len(holder), _CHUNK):
                part = holder[start : start + _CHUNK]
                for block in part:
                    expected[block.block_id] += 1
                seen += len(part)
                if seen >= _CHUNK:
                    seen = 0
                    yield
        for start in range(0, len(blocks), _CHUNK):
            chunk, explained = blocks[start : start + _CHUNK], expected[start : start + _CHUNK]
            if [block.ref_cnt for block in chunk] != explained:
                for block, references in zip(chunk, explained, strict=True):
                    if block.ref_cnt != references and not block.is_null:
                        if len(self.excess) >= MAX_NAMED:
                            self.unnamed += 1
                        else:
                            self.excess[block.block_id] = block.ref_cnt - references
            self.cached_idle += sum(not block.ref_cnt and block._block_hash is not None for block in chunk)
            yield


@dataclass(frozen=True, slots=True)
class Finding:
    """What the audit knows now; nothing yet while ``passes`` is 0.

    ``excess``: block id -> unexplained references (> 0: orphaned, < 0: over-freed), confirmed by two passes.
    ``cached_idle`` was counted at ``finished`` (monotonic seconds). ``still``: nothing changed during the pass, so that
    its verdict covers every block. ``orphaned`` and ``over_freed`` count the blocks of ``excess``, ``net`` is its sum.
    ``unjudged``: blocks with an excess that changed, that a second pass must confirm, or
    that were too many to name.
    """

    excess: dict[int, int]
    cached_idle: int
    finished: float
    still: bool
    passes: int
    unjudged: int = 0
    orphaned: int = field(init=False)
    over_freed: int = field(init=False)
    net: int = field(init=False)

    def __post_init__(self) -> None:
        # Asked for ten times a second: summed once.
        values = self.excess.values()
        object.__setattr__(self, "orphaned", sum(value > 0 for value in values))
        object.__setattr__(self, "over_freed", sum(value < 0 for value in values))
        object.__setattr__(self, "net", sum(values))


class Audit:
    """Runs passes over one pool, a slice at a time, on the engine's own thread between two steps.

    ``min_period``: seconds between the starts of two passes that nothing asked for; stretched so that passes take
    at most ``duty`` of the thread's time.
    """

    def __init__(
        self,
        view: SchedulerView,
        ledger: ReferenceLedger,
        *,
        min_period: float = 1.0,
        duty: float = 0.001,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view = view
        self._ledger = ledger
        self._min_period = min_period
        self._duty = duty
        self._clock = clock
        self._pass: _Pass | None = None
        self._suspects: dict[int, int] = {}
        self._next_start = 0.0
        self.finding = Finding(excess={}, cached_idle=0, finished=0.0, still=False, passes=0)

    @property
    def wants_more(self) -> bool:
        """Whether a pass is under way or was asked for."""
        return self._pass is not None or self._next_start == 0.0

    def request(self) -> None:
        """Ask for a pass now: the counted references do not match the tables, or the agent wants to know."""
        self._next_start = 0.0

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
            self._pass, self._suspects, self._ledger.changed = None, {}, None
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
        self.finding = Finding(
            excess=confirmed,
            cached_idle=found.cached_idle,
            finished=now,
            still=not changed,
            passes=self.finding.passes + 1,
            unjudged=sum(block not in confirmed for block in found.excess) + found.unnamed,
        )
        self._suspects = pending
        # The pass that judges the suspects again must know of every change since this one ended.
        self._ledger.changed = set() if pending else None
        self._pass = None
        self._next_start = 0.0 if pending else found.started + max(self._min_period, found.busy_seconds / self._duty)
