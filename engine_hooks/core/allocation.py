"""How an engine obtains KV blocks: how long taking them lasts, who was refused memory, and who was put back for it.

``allocate_slots`` runs once a step for every running request and is not timed; ``get_new_blocks`` runs only where
blocks leave the free queue, and the ledger times it in one step of seventeen. Blocks are all counted.
"""

from __future__ import annotations

from typing import Any

from engine_hooks.core.buckets import REQUEST_SECONDS, Buckets
from engine_hooks.core.observers import Context, UnsupportedError
from engine_hooks.detail import AllocationRow

WAIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, *REQUEST_SECONDS)
MANY_RETRIES = 3
MAX_REFUSED = 4096  # requests that wait after a refusal; those beyond are counted, but not followed


class _Refused:
    """A request that waits since memory was refused to it: ``since`` when (seconds), ``attempts`` so far.

    ``let_go``: how often a request had let blocks go when the last of these attempts was made.
    """

    __slots__ = ("attempts", "let_go", "since")

    def __init__(self, since: float, let_go: int) -> None:
        self.since = since
        self.attempts = 0
        self.let_go = let_go


class AllocationObserver:
    """Fills ``allocation``.

    A refusal is an attempt to admit the request at the head of a queue that the pool had no room for. vLLM asks again
    at each step, and while nobody lets blocks go the answer can only be the same: refusals in a row, and the retries of
    a request, count such steps once. A full pool that serves has few of them, one in which room is made again and again
    and never enough has many. A running request that finds no room puts others back, or itself: that is a preemption,
    and it is no refusal in a row that who was put back is not admitted at once.
    """

    HOOK = "allocation"
    SECTION = "allocation"

    def __init__(self, context: Context) -> None:
        ledger = context.accounts.ledger
        if ledger is None:
            raise UnsupportedError(f"blocks are not counted here: {context.accounts.support.reason}")
        if not hasattr(getattr(context.scheduler, "waiting", None), "peek_request"):
            raise UnsupportedError("the waiting queues of this vLLM have no peek_request")
        self._ledger = ledger
        self._sees_preemptions = hasattr(context.scheduler, "_preempt_request")
        self._clock = context.clock
        self._taken = 0
        self._wait_seconds = Buckets(WAIT_SECONDS)
        self._refused: dict[str, _Refused] = {}
        self._refusals = 0
        self._in_a_row = 0  # while ``_grants`` requests have got memory
        self._grants = 0
        self._most_in_a_row = 0
        self._many_retries = 0
        self._retried: dict[str, None] = {}  # those counted there that live
        self._preempted = 0
        self._taps = taps = context.taps
        taps.refused.append(self._on_refused)
        taps.readmitted.append(self._on_readmitted)
        taps.preempted.append(self._on_preempted)
        taps.books += [self._refused, self._retried]

    def section(self, now: float) -> AllocationRow:
        """Return the totals, and who waits after a refusal now."""
        waiting = self._refused.values()
        # A pool that changes its size (sleep, elastic memory) may move the free count too: a total never falls.
        self._taken = max(self._taken, self._ledger.new + self._ledger.revived)
        return AllocationRow(
            block_seconds=self._ledger.new_seconds.row(),
            wait_seconds=self._wait_seconds.row(),
            blocks_taken_total=self._taken,
            blocks_given_back_total=self._ledger.returned,
            refused_total=self._refusals,
            preempted_total=self._preempted if self._sees_preemptions else None,
            consecutive_refusals=self._in_a_row if self._grants == self._taps.grants else 0,
            most_consecutive_refusals=self._most_in_a_row,
            most_retries=max((entry.attempts for entry in waiting), default=0),
            over_three_retries_total=self._many_retries,
            waiting_refused=len(waiting),
            oldest_refused_seconds=max((now - entry.since for entry in waiting), default=None),
        )

    # -- requests ------------------------------------------------------------------------------------------

    def _on_refused(self, request: Any) -> None:
        self._refusals += 1
        entry = self._refused.get(request.request_id)
        if entry is None:
            if len(self._refused) >= MAX_REFUSED:
                return
            put_back = request.status.name == "PREEMPTED"
            entry = self._refused[request.request_id] = _Refused(self._clock(), self._taps.let_go if put_back else -1)
        if entry.let_go == self._taps.let_go:
            return
        entry.let_go = self._taps.let_go
        if self._grants != self._taps.grants:
            self._grants, self._in_a_row = self._taps.grants, 0
        self._in_a_row += 1
        if self._in_a_row > self._most_in_a_row:
            self._most_in_a_row = self._in_a_row
        entry.attempts += 1
        if entry.attempts == MANY_RETRIES + 1 and request.request_id not in self._retried:
            self._many_retries += 1
            self._retried[request.request_id] = None

    def _on_readmitted(self, request: Any) -> None:
        entry = self._refused.pop(request.request_id, None)
        if entry is not None:
            self._wait_seconds.add(self._clock() - entry.since)

    def _on_preempted(self, _request: Any) -> None:
        """Count a request that was put back for memory; one that a reset puts back is put back between steps."""
        if self._taps.in_schedule:
            self._preempted += 1
