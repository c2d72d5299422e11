"""The accounts of one engine's KV pool: counters, the conservation net, the idle check and the audit, put together.

Three views of increasing price and exactness: O(1) counters at each step; the net of references every 100 ms; the
audit, which names the blocks. At rest no request exists, so every held block is orphaned: exact and O(1).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine_hooks.core.audit import Audit
from engine_hooks.core.ledger import ReferenceLedger
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.wire import PoolReport, Support

NET_SECONDS = 0.1
NET_DUTY = 0.001  # the net check may take this share of the engine thread's time
DRIFT_PASSES = 10  # audits that find nothing to explain a difference before the count itself is corrected


class KVAccounts:
    """Keeps one pool's accounts on the engine's own thread, between steps.

    ``support`` says whether the pool can be accounted for exactly; if not, only the counters are reported.
    """

    def __init__(self, view: SchedulerView, guard: Guard, clock: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._guard = guard
        self._clock = clock
        self.support = view.support
        self.ledger: ReferenceLedger | None = None
        self.audit: Audit | None = None
        self.drift = 0
        self._net = 0
        self._next_net = 0.0
        self._gap = 0
        self._gap_passes = 0
        self._unnamed_at_rest = 0
        self._held_min = self._held_max = 0

    def start(self) -> None:
        """Wrap the pool and test ourselves: an audit of an engine that has served nothing must be clean."""
        if self._view.pool is None:
            return
        self._held_min = self._held_max = self._view.held()
        if not self.support.ok:
            return
        self.support = Support(ok=False, reason="the self-test did not end")
        ledger = ReferenceLedger(self._view, self._guard)
        audit = Audit(self._view, ledger, clock=self._clock)
        finding = audit.complete()
        if finding.excess or ledger.net():
            self.support = Support(
                ok=False,
                reason=f"self-test: {len(finding.excess)} blocks do not balance on an engine that served nothing",
            )
            return
        ledger.install()
        self.ledger, self.audit = ledger, audit
        self.support = Support(ok=True)

    @property
    def ledger_seconds(self) -> float:
        """What counting references has cost inside the engine's steps so far."""
        return self.ledger.seconds if self.ledger else 0.0

    def observe_step(self) -> None:
        """Note the held blocks' range: O(1), after each step."""
        held = self._view.held()
        if held < self._held_min:
            self._held_min = held
        if held > self._held_max:
            self._held_max = held

    def advance_audit(self, seconds: float) -> bool:
        """Give the audit a slice of at most ``seconds``; return whether it wants more."""
        if self.audit is None or "audit" in self._guard.off:
            return False
        self.audit.advance(seconds)
        return self.audit.wants_more

    def request_audit(self) -> None:
        """Have the audit start at once."""
        if self.audit is not None:
            self.audit.request()

    def report(self) -> PoolReport | None:
        """Return the pool's numbers now, and begin a new range for ``held_min`` and ``held_max``."""
        if self._view.pool is None:
            return None
        self.observe_step()
        capacity, held = self._view.capacity(), self._view.held()
        orphaned, over_freed, exact = self._judge(held)
        finding = self.audit.finding if self.audit else None
        free = max(0, capacity - held)
        report = PoolReport(
            capacity=capacity,
            held=held,
            held_min=self._held_min,
            held_max=self._held_max,
            cached_idle=min(finding.cached_idle, free) if finding else None,
            cached_idle_age_seconds=max(0.0, self._clock() - finding.finished) if finding else None,
            orphaned=orphaned,
            over_freed=over_freed,
            exact=exact,
            audits=finding.passes if finding else 0,
            ledger_drift=self.drift,
        )
        self._held_min = self._held_max = held
        return report

    def _judge(self, held: int) -> tuple[int | None, int | None, bool]:
        """Return orphaned blocks, over-freed blocks, and whether both are exact; None when not supported."""
        audit, ledger = self.audit, self.ledger
        if audit is None or ledger is None or "audit" in self._guard.off:
            return None, None, False
        finding = audit.finding
        counted = ReferenceLedger.HOOK not in self._guard.off and self._view.net_is_cheap()
        gap = self._difference(ledger, audit) if counted else 0
        # A difference first cancels what the last audit named: those blocks may have been given back since.
        orphaned = max(0, finding.orphaned + gap) if gap < 0 else finding.orphaned + max(0, gap - finding.over_freed)
        over_freed = (
            max(0, finding.over_freed - gap) if gap > 0 else finding.over_freed + max(0, -gap - finding.orphaned)
        )
        if self._view.at_rest():
            unnamed = held - finding.orphaned
            if unnamed and unnamed != self._unnamed_at_rest:
                audit.request()  # once: blocks that were lost without a reference can't be named by any pass
            self._unnamed_at_rest = unnamed
            return held, over_freed, True
        return orphaned, over_freed, counted and gap == 0

    def _difference(self, ledger: ReferenceLedger, audit: Audit) -> int:
        """Return the references that are neither explained nor named by the audit; corrects a drifted count."""
        now = self._clock()
        if now >= self._next_net:
            self._net = ledger.net()
            self._next_net = now + max(NET_SECONDS * 0.9, (self._clock() - now) / NET_DUTY)
        gap = self._net - audit.finding.net
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
