"""Whether, and after how long, what a tenant's requests without a session have cached is asked for again.

Learned from the prompts that come, not from what is found: a prefix that was evicted before it was asked for again has
been asked for all the same. So where a pool is too small it does not look as if nobody came back.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

HORIZON_SECONDS = 300.0  # who has not come back by then counts as not coming: from there on the block is idle anyway
LEAST_SECONDS = 10.0  # nothing is told of what is younger
LEAST_SEEN = 20  # requests whose outcome is known, for a word on their tenant
EVERY_SECONDS = 1.0  # one request of a tenant is followed in that time at most, so that a row reaches back far enough
MAX_FOLLOWED = 400  # per tenant
MAX_TENANTS = 32


class Outcome:
    """What became of one prompt. ``at``: when its request ended (monotonic seconds); ``after``: how many seconds later
    another ended that began with the same prompt, None while none has.
    """

    __slots__ = ("after", "at", "key")

    def __init__(self, key: Any, at: float) -> None:
        self.key, self.at = key, at
        self.after: float | None = None


class Reuse:
    """The last outcomes of each of the last tenants: bounded by the constants above."""

    def __init__(self) -> None:
        self._open: dict[Any, Outcome] = {}  # by the hash of the last full block of its prompt
        self._rows: OrderedDict[str, deque[Outcome]] = OrderedDict()

    def note(self, tenant: str, hashes: Sequence[Any], prompt: int, now: float) -> None:
        """Take in a request that has ended: the ``hashes`` of its full blocks, ``prompt`` of them of its prompt."""
        found = self._open
        if found and not found.keys().isdisjoint(hashes):
            for key in hashes:
                if (outcome := found.pop(key, None)) is not None:
                    outcome.after = now - outcome.at
        if not 0 < prompt <= len(hashes):
            return
        row = self._rows.get(tenant)
        if row is None:
            row = self._rows[tenant] = deque()
            if len(self._rows) > MAX_TENANTS:
                for outcome in self._rows.popitem(last=False)[1]:
                    self._forget(outcome)
        elif now - row[-1].at < EVERY_SECONDS:
            return
        self._rows.move_to_end(tenant)
        outcome = found[hashes[prompt - 1]] = Outcome(hashes[prompt - 1], now)
        row.append(outcome)
        if len(row) > MAX_FOLLOWED:
            self._forget(row.popleft())

    def age(self, tenant: str, now: float) -> float | None:
        """Return the age (seconds) from which what this tenant has cached, and nobody has asked for yet, is more likely
        not to be asked for any more than to be; None where too little is known of it.
        """
        known = [outcome.after for outcome in self._rows.get(tenant, ()) if now - outcome.at >= HORIZON_SECONDS]
        if len(known) < LEAST_SEEN:
            return None
        came = sorted(after for after in known if after is not None and after <= HORIZON_SECONDS)
        sooner = len(came) - (len(known) - len(came))  # once so many have come those to come are not the more
        return max(LEAST_SECONDS, came[sooner - 1]) if sooner > 0 else LEAST_SECONDS

    def _forget(self, outcome: Outcome) -> None:
        if self._open.get(outcome.key) is outcome:
            del self._open[outcome.key]
