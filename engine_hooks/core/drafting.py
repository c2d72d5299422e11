"""The life of a request's speculative drafts, as a state machine.

    (none) --> drafting <--> committed
                  |
                  v
               aborted ----> cleaned

``drafting``: drafts wait to be verified, or a step that verifies them is in flight. ``committed``: the last ones were
verified, accepted or not. ``aborted``: the request ended or was preempted before that, and its blocks are still held.
``cleaned``: they were given back; the request leaves the table.

Pure: no vLLM and no clock; ``now`` is seconds of whatever clock the caller has.
"""

from __future__ import annotations

import enum

STUCK_SECONDS = 10.0
MAX_REQUESTS = 4096


class DraftState(enum.StrEnum):
    """Where a request's drafts are."""

    DRAFTING = "drafting"
    COMMITTED = "committed"
    ABORTED = "aborted"
    CLEANED = "cleaned"


NEXT: dict[DraftState | None, frozenset[DraftState]] = {
    None: frozenset({DraftState.DRAFTING}),
    DraftState.DRAFTING: frozenset({DraftState.COMMITTED, DraftState.ABORTED}),
    DraftState.COMMITTED: frozenset({DraftState.DRAFTING}),
    DraftState.ABORTED: frozenset({DraftState.CLEANED}),
    DraftState.CLEANED: frozenset(),
}
MAY_STICK = frozenset({DraftState.DRAFTING, DraftState.ABORTED})


class DraftError(ValueError):
    """A step that the machine does not have."""


class _Drafts:
    __slots__ = ("progress", "since", "state")

    def __init__(self, state: DraftState, progress: object, since: float) -> None:
        self.state = state
        self.progress = progress
        self.since = since


class DraftTable:
    """The states of the requests that speculate, at most ``limit`` of them: those beyond are not followed."""

    def __init__(self, limit: int = MAX_REQUESTS) -> None:
        self._limit = limit
        self._drafts: dict[str, _Drafts] = {}

    def __len__(self) -> int:
        return len(self._drafts)

    def state(self, request: str) -> DraftState | None:
        """Return a request's state; None for one that has no drafts, or is not followed."""
        drafts = self._drafts.get(request)
        return drafts.state if drafts else None

    def requests(self) -> list[str]:
        """Return the requests that are followed now."""
        return list(self._drafts)

    def draft(self, request: str, progress: object, now: float) -> None:
        """Its drafts wait to be verified. ``progress``: whatever changes when a step gets the request on.

        A request that drafts again and again has been in this state only since its progress last changed.
        """
        drafts = self._drafts.get(request)
        if drafts is not None and drafts.state is DraftState.DRAFTING:
            if drafts.progress != progress:
                drafts.progress, drafts.since = progress, now
        elif drafts is not None or len(self._drafts) < self._limit:
            self._move(request, DraftState.DRAFTING, now, progress)

    def commit(self, request: str, now: float) -> None:
        """Its drafts were verified."""
        if self.state(request) is not DraftState.COMMITTED:
            self._move(request, DraftState.COMMITTED, now)

    def abort(self, request: str, now: float) -> None:
        """It ended or was preempted with drafts not verified."""
        self._move(request, DraftState.ABORTED, now)

    def clean(self, request: str, now: float) -> None:
        """Its blocks were given back."""
        self._move(request, DraftState.CLEANED, now)
        del self._drafts[request]

    def forget(self, request: str) -> None:
        """It ended, or waits again, with nothing left to verify."""
        self._drafts.pop(request, None)

    def counts(self) -> dict[str, int]:
        """Return how many requests are in each state that lasts."""
        counts = {str(state): 0 for state in DraftState if state is not DraftState.CLEANED}
        for drafts in self._drafts.values():
            counts[drafts.state] += 1
        return counts

    def stuck(self, now: float, seconds: float = STUCK_SECONDS) -> int:
        """Return how many requests have been drafting without progress, or aborted, for longer than ``seconds``."""
        return sum(d.state in MAY_STICK and now - d.since > seconds for d in self._drafts.values())

    def _move(self, request: str, to: DraftState, now: float, progress: object = None) -> None:
        drafts = self._drafts.get(request)
        state = drafts.state if drafts else None
        if to not in NEXT[state]:
            raise DraftError(f"from {state or 'nothing'} to {to}")
        self._drafts[request] = _Drafts(to, progress, now)
