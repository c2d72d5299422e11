"""Verdicts, state by state, as episodes: what was suspected, confirmed and resolved, and when."""

from __future__ import annotations

from dataclasses import dataclass

from agent.backtest.result import Episode, Passed
from agent.state import Judgement, Subject, Tier, Verdict

MAX_EPISODES = 10_000
TIERS: tuple[Tier, ...] = ("note", "warn", "page")


@dataclass(slots=True)
class _Open:
    suspected_at: float
    seen_at: float
    confirmed_at: float = 0.0
    confirmed: Verdict | None = None
    tier: Tier = "note"
    paged_at: float | None = None

    def take(self, verdict: Verdict, at: float, shift: float) -> None:
        self.seen_at = at
        if verdict.phase != "confirmed":
            return
        if self.confirmed is None or self.confirmed.tier == "note" != verdict.tier:
            self.confirmed, self.confirmed_at = verdict, verdict.changed + shift  # nobody is told of a note
        self.tier = max(self.tier, verdict.tier, key=TIERS.index)
        if verdict.tier == "page" and self.paged_at is None:
            self.paged_at = at


class Episodes:
    """Of one policy over one history. Bounded: what comes after ``MAX_EPISODES`` is counted."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, Subject], _Open] = {}
        self._passed: dict[str, tuple[int, float]] = {}
        self._closed: list[Episode] = []
        self.left_out = 0

    def take(self, judgement: Judgement, at: float) -> None:
        """Take the next judgement, made at ``at`` by the history's own clock, which is never set."""
        shift = at - judgement.at
        standing = {(each.kind, each.subject): each for each in judgement.verdicts}
        for key in self._open.keys() - standing.keys():
            self._close(key, at, "")
        for key, verdict in standing.items():
            if verdict.phase == "resolved":
                if key in self._open:
                    self._close(key, verdict.changed + shift, verdict.ending)
                continue
            known = self._open.get(key)
            if known is None:
                known = self._open[key] = _Open(suspected_at=verdict.since + shift, seen_at=at)
            known.take(verdict, at, shift)

    def end(self, at: float, ending: str) -> None:
        """What judged has ended at ``at``: so have its verdicts."""
        for key in list(self._open):
            self._close(key, at, ending)

    def finish(self) -> tuple[tuple[Episode, ...], tuple[Passed, ...]]:
        """Return the episodes in the order of their confirmation, and what was suspected and went away.

        A suspicion that stands at the end is neither.
        """
        for key, known in self._open.items():
            self._add(key, known, None, "")
        self._open.clear()
        passed = [Passed(kind=kind, count=n, longest_seconds=most) for kind, (n, most) in sorted(self._passed.items())]
        return tuple(sorted(self._closed, key=lambda each: each.confirmed_at)), tuple(passed)

    def _close(self, key: tuple[str, Subject], at: float, ending: str) -> None:
        known = self._open.pop(key)
        if known.confirmed is None:
            count, longest = self._passed.get(key[0], (0, 0.0))
            self._passed[key[0]] = (count + 1, max(longest, known.seen_at - known.suspected_at))
        else:
            self._add(key, known, at, ending)

    def _add(self, key: tuple[str, Subject], known: _Open, resolved_at: float | None, ending: str) -> None:
        kind, subject = key
        confirmed = known.confirmed
        if confirmed is None:
            return
        if len(self._closed) >= MAX_EPISODES:
            self.left_out += 1
            return
        self._closed.append(
            Episode(
                kind=kind,
                subject=subject,
                tier=known.tier,
                suspected_at=known.suspected_at,
                confirmed_at=known.confirmed_at,
                paged_at=known.paged_at,
                resolved_at=resolved_at,
                ending=ending,
                sentence=confirmed.sentence,
                evidence=confirmed.evidence,
            )
        )
