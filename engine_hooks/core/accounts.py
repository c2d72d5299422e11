"""The accounts of one engine's KV pools: counters, the conservation net, the check at rest and the audit, together.

Three views of increasing price and exactness: O(1) counters at each step; the net of references every 100 ms; the
audit, which names the blocks. At rest no request exists, so every held block is orphaned: exact and O(1).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from engine_hooks.core.audit import Audit, Finding
from engine_hooks.core.ledger import ReferenceLedger
from engine_hooks.core.pool_view import PoolView
from engine_hooks.core.steps import Steps
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.wire import PoolReport, Support

NET_SECONDS = 0.1
NET_DUTY = 0.001  # the net check may take this share of the engine thread's time
DRIFT_PASSES = 10  # audits that find nothing to explain a difference before the count itself is corrected
PIN_SECONDS = 600.0  # what an unknown connector holds for longer is orphaned


@dataclass(frozen=True, slots=True)
class Judgement:
    """Orphaned and over-freed blocks, references pinned by an unknown holder, and whether all are exact now; None when
    not supported.
    """

    orphaned: int | None = None
    over_freed: int | None = None
    pinned: int | None = None
    exact: bool = False


class PoolAccounts:
    """Keeps one pool's accounts on the engine's own thread, between steps.

    ``support`` says whether the pool can be accounted for exactly. ``at_rest`` tells whether nothing can rightly hold a
    block now. ``pin_seconds``: after what time references that an unknown connector may hold count as orphaned.
    """

    def __init__(
        self,
        view: PoolView,
        guard: Guard,
        clock: Callable[[], float],
        *,
        support: Support,
        at_rest: Callable[[], bool],
        pin_seconds: float,
    ) -> None:
        self.view = view
        self._guard = guard
        self._clock = clock
        self._at_rest = at_rest
        self._pin_seconds = pin_seconds
        self.support = support
        self.ledger: ReferenceLedger | None = None
        self.audit: Audit | None = None
        self.drift = 0
        self._net = 0
        self._next_net = 0.0
        self._gap = 0
        self._gap_passes = 0
        self._unnamed_at_rest = 0

    def start(self) -> None:
        """Wrap the pool and test ourselves: an audit of an engine that has served nothing must be clean."""
        if not self.support.ok:
            return
        self.support = Support(ok=False, reason="the self-test did not end")
        ledger = ReferenceLedger(self.view, self._guard)
        audit = Audit(self.view, ledger, clock=self._clock)
        finding = audit.complete()
        if finding.excess or ledger.net():
            self.support = Support(
                ok=False,
                reason=f"self-test: {len(finding.excess)} blocks do not balance on an engine that served nothing",
            )
            return
        if finding.lost and self._at_rest():
            self.view.set_aside(finding.lost)
        elif finding.lost:
            ledger.references += finding.lost  # it counts those that went missing before it began, too
        ledger.install()
        self.ledger, self.audit = ledger, audit
        self.support = Support(ok=True)

    @property
    def watched(self) -> bool:
        """Whether blocks are audited: supported, and not switched off after errors."""
        return self.audit is not None and "audit" not in self._guard.off

    def judge(self) -> Judgement:
        """Return what is known now from the net, the audit and the check at rest."""
        audit, ledger = self.audit, self.ledger
        if audit is None or ledger is None or "audit" in self._guard.off:
            return Judgement()
        finding = audit.finding
        counted = self._counted()
        gap = self._difference(ledger, audit) if counted else 0
        # A difference first cancels what the last audit found, unless it can be seen to stand: the rest may have been
        # given back since. A block may have been found with several references.
        lost = finding.lost or 0
        orphaned, over_freed = finding.orphaned + lost, finding.over_freed
        if gap < 0:
            orphaned = max(self._standing(finding, 1), orphaned + gap)
            over_freed += max(0, -gap - finding.leaked - lost)
        elif gap > 0:
            over_freed = max(self._standing(finding, -1), over_freed - gap)
            orphaned += max(0, gap - (finding.leaked - finding.net))
        if self._at_rest():
            held = self.view.held()
            unnamed = held - finding.orphaned
            if unnamed and unnamed != self._unnamed_at_rest:
                audit.request()  # once: blocks that were lost without a reference can't be named by any pass
            self._unnamed_at_rest = unnamed
            return Judgement(held, over_freed, 0, True)
        if not self.view.unknown_pinners:
            return Judgement(orphaned, over_freed, 0, counted and gap == 0)
        blocks, references = self._young(finding)
        return Judgement(
            max(0, finding.orphaned - blocks) + lost,
            over_freed,
            references + max(0, gap),
            counted and gap == 0,
        )

    def unbalanced(self) -> bool:
        """Whether the net of references has come to differ, or to agree again, since it was last looked at."""
        audit, ledger = self.audit, self.ledger
        if audit is None or ledger is None or not self._counted():
            return False
        known = self._gap
        return self._difference(ledger, audit) != known

    def _counted(self) -> bool:
        return (
            not (self._guard.off and self._guard.off.keys() & {"audit", ReferenceLedger.HOOK})
            and self.view.net_is_cheap()
        )

    def _standing(self, finding: Finding, sign: int) -> int:
        """Return how many blocks with an excess of this sign have the references that they were found with."""
        blocks = self.view.pool.blocks
        return sum(
            by * sign > 0 and blocks[block].ref_cnt == finding.references[block] for block, by in finding.excess.items()
        )

    def pinned_blocks(self) -> set[int]:
        """Ids of blocks that an unknown connector may still rightly hold."""
        if self.audit is None or not self.view.unknown_pinners:
            return set()
        finding, limit = self.audit.finding, self._clock() - self._pin_seconds
        return {block for block, by in finding.excess.items() if by > 0 and finding.since.get(block, 0.0) > limit}

    def _young(self, finding: Finding) -> tuple[int, int]:
        """Return the blocks, and their unexplained references, that an unknown connector may still rightly hold."""
        young = [finding.excess[block] for block in self.pinned_blocks()]
        return len(young), sum(young)

    def _difference(self, ledger: ReferenceLedger, audit: Audit) -> int:
        """Return the references that are neither explained nor named by the audit; corrects a drifted count."""
        now = self._clock()
        if now >= self._next_net:
            self._net = ledger.net()
            self._next_net = now + max(NET_SECONDS * 0.9, (self._clock() - now) / NET_DUTY)
        gap = self._net - audit.finding.net - (audit.finding.lost or 0)
        if gap != self._gap:
            self._gap, self._gap_passes = gap, audit.finding.passes
            if gap:
                audit.request()
        elif gap and self._nobody_carries(audit):
            # The audit has the last word: no block carries this difference, so a reference took another path.
            ledger.references -= gap
            self.drift += abs(gap)
            self._net -= gap
            self._gap = gap = 0
        return gap

    def _nobody_carries(self, audit: Audit) -> bool:
        """Whether enough passes have looked for the blocks behind a difference and found none, judged or not."""
        finding = audit.finding
        return not finding.unjudged and finding.passes - self._gap_passes >= (2 if finding.still else DRIFT_PASSES)


class KVAccounts:
    """The accounts of all pools of one engine; the main pool's numbers go into every report."""

    def __init__(
        self,
        view: SchedulerView,
        guard: Guard,
        clock: Callable[[], float] = time.monotonic,
        pin_seconds: float = PIN_SECONDS,
    ) -> None:
        self._view = view
        self._guard = guard
        self._clock = clock
        self.main = PoolAccounts(
            view, guard, clock, support=view.support, at_rest=view.at_rest, pin_seconds=pin_seconds
        )
        self.others = tuple(
            PoolAccounts(
                other,
                guard,
                clock,
                support=other.probe(),
                at_rest=lambda other=other: view.at_rest() and other.nothing_pinned(),  # type: ignore[misc]
                pin_seconds=pin_seconds,
            )
            for other in view.others
        )
        self._turn = 0
        self.steps = Steps(getattr(view.scheduler, "requests", ()), view.pool)

    @property
    def support(self) -> Support:
        """Whether the main pool can be accounted for exactly."""
        return self.main.support

    @property
    def ledger(self) -> ReferenceLedger | None:
        """The main pool's count of references."""
        return self.main.ledger

    @property
    def audit(self) -> Audit | None:
        """The main pool's audit."""
        return self.main.audit

    @property
    def drift(self) -> int:
        """References of the main pool that took a path which is not counted, found and corrected."""
        return self.main.drift

    def start(self) -> None:
        """Wrap the pools and test ourselves."""
        if self._view.pool is None:
            return
        for accounts in (self.main, *self.others):
            accounts.start()
        if self.main.ledger is not None:
            self.steps.ledger = self.main.ledger
            self.main.ledger.timing = True

    @property
    def ledger_seconds(self) -> float:
        """What counting references has cost inside the engine's steps so far."""
        return sum(accounts.ledger.seconds for accounts in (self.main, *self.others) if accounts.ledger)

    def observe_step(self) -> None:
        """Note the free blocks' range: O(1), after each step. Blocks are timed in one step of seventeen."""
        if self._view.pool is not None:
            self.steps.observe()

    def taken_offline(self, blocks: int) -> None:
        """Note that the main pool has become smaller by so many free blocks; below zero: larger again.

        The pool's own size and its free queue have been changed by then, at the same moment.
        """
        self._view.offline += blocks
        self.steps.low -= blocks
        self.steps.high -= blocks
        if self.main.ledger is not None:
            self.main.ledger.withdrawn(blocks)
        self.rearranged()

    def rearranged(self) -> None:
        """Note that blocks of the main pool have changed places: an audit's pass that is under way proves nothing."""
        if self.main.audit is not None:
            self.main.audit.restart()

    def advance_audit(self, seconds: float) -> bool:
        """Give one pool's audit a slice of at most ``seconds``; return whether any wants more."""
        watched = [accounts.audit for accounts in (self.main, *self.others) if accounts.watched and accounts.audit]
        if not watched:
            return False
        self._turn += 1
        # A pool whose audit is under way or asked for comes first; the rest take turns.
        eager = [audit for audit in watched if audit.wants_more] or watched
        eager[self._turn % len(eager)].advance(seconds)
        return any(audit.wants_more for audit in watched)

    def unbalanced(self) -> bool:
        """Whether the main pool's net of references has changed; looks at it at most ten times a second."""
        return self.main.unbalanced()

    def request_audit(self) -> None:
        """Have the audits start at once."""
        for accounts in (self.main, *self.others):
            if accounts.audit is not None:
                accounts.audit.request()

    def report(self) -> PoolReport | None:
        """Return the main pool's numbers now, and begin a new range for ``held_min`` and ``held_max``."""
        view, steps = self._view, self.steps
        if view.pool is None:
            return None
        capacity, held = view.capacity(), view.held()
        judgement = self.main.judge()
        finding = self.main.audit.finding if self.main.audit else None
        report = PoolReport(
            capacity=capacity,
            held=held,
            held_min=max(0, capacity - steps.high),
            held_max=max(0, capacity - steps.low),
            cached_idle=min(finding.cached_idle, max(0, capacity - held)) if finding else None,
            cached_idle_age_seconds=max(0.0, self._clock() - finding.finished) if finding else None,
            orphaned=judgement.orphaned,
            over_freed=judgement.over_freed,
            exact=judgement.exact,
            audits=finding.passes if finding else 0,
            ledger_drift=self.main.drift,
            delayed=view.delayed(),
            deferred=view.deferred(),
            pinned=judgement.pinned,
        )
        steps.low = steps.high = capacity - held
        return report
