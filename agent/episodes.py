"""Verdicts, judgement by judgement, as episodes: what was suspected, confirmed and resolved, and when. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from agent.state import Tier, Verdict
from agent.subject import Subject

MAX_EPISODES = 10_000
TIERS: tuple[Tier, ...] = ("note", "warn", "page")

_Key = tuple[str, Subject]


@dataclass(slots=True)
class Episode:
    """One verdict that was confirmed. Times are those of who took the judgements.

    ``tier``: the highest that it had. ``told_at``: when somebody had to know of it, None where it was a note all the
    time; ``paged_at``: when it first paged. ``told``: the verdict then, or when it was confirmed as a note; ``last``:
    as it was last. ``resolved_at``: None where its end was not seen; ``ending``: why, where that is known.
    """

    kind: str
    subject: Subject
    suspected_at: float
    confirmed_at: float
    told: Verdict
    last: Verdict
    tier: Tier
    told_at: float | None = None
    paged_at: float | None = None
    resolved_at: float | None = None
    ending: str = ""


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """Suspicions of one kind that went away: how many, and how long the longest lasted."""

    kind: str
    count: int
    longest_seconds: float


@dataclass(slots=True)
class _Open:
    suspected_at: float
    seen_at: float
    episode: Episode | None = None

    def take(self, verdict: Verdict, at: float, shift: float) -> None:
        self.seen_at = at
        if verdict.phase != "confirmed":
            return
        told = self.episode
        if told is None:
            begun = verdict.changed + shift
            told = self.episode = Episode(
                verdict.kind, verdict.subject, self.suspected_at, begun, verdict, verdict, verdict.tier
            )
        told.last = verdict
        told.tier = max(told.tier, verdict.tier, key=TIERS.index)
        if verdict.tier != "note" and told.told_at is None:
            told.told, told.told_at = verdict, verdict.changed + shift
        if verdict.tier == "page" and told.paged_at is None:
            told.paged_at = at


class Episodes:
    """Of one judge. Bounded: what comes after ``MAX_EPISODES`` is counted in ``left_out``."""

    def __init__(self) -> None:
        self._open: dict[_Key, _Open] = {}
        self._passed: dict[str, tuple[int, float]] = {}
        self._closed: list[Episode] = []
        self.left_out = 0

    def take(self, verdicts: tuple[Verdict, ...], at: float, shift: float = 0.0) -> None:
        """Take the verdicts of the next judgement, made at ``at``; ``shift`` is added to the verdicts' own times.

        Times once taken stay, whatever is done to the clock that later verdicts tell theirs by.
        """
        standing = {(each.kind, each.subject): each for each in verdicts}
        for key in self._open.keys() - standing.keys():
            self._close(key, at, "")
        for key, verdict in standing.items():
            known = self._open.get(key)
            if verdict.phase == "resolved":
                if known is not None:
                    self._close(key, verdict.changed + shift, verdict.ending)
                continue
            if known is not None and known.episode is not None and verdict.phase == "suspect":
                self._close(key, at, "")  # in between, it was resolved and forgotten
                known = None
            if known is None:
                known = self._open[key] = _Open(verdict.since + shift, at)
            known.take(verdict, at, shift)

    def end(self, at: float | None, ending: str) -> None:
        """Who judged has ended at ``at``, and what stood ends with it; None: nobody saw its end."""
        for key in list(self._open):
            known = self._open[key]
            if at is None and known.episode is None:
                del self._open[key]
            else:
                self._close(key, at, ending)

    def finish(self) -> tuple[tuple[Episode, ...], tuple[Passed, ...]]:
        """Return the episodes in the order of their confirmation, and what was suspected and went away.

        A suspicion that stands at the end is neither.
        """
        self.end(None, "")
        passed = [Passed(kind=kind, count=n, longest_seconds=most) for kind, (n, most) in sorted(self._passed.items())]
        return tuple(sorted(self._closed, key=lambda each: each.confirmed_at)), tuple(passed)

    def _close(self, key: _Key, at: float | None, ending: str) -> None:
        known = self._open.pop(key)
        episode = known.episode
        if episode is None:
            count, longest = self._passed.get(key[0], (0, 0.0))
            self._passed[key[0]] = (count + 1, max(longest, known.seen_at - known.suspected_at))
        elif len(self._closed) >= MAX_EPISODES:
            self.left_out += 1
        else:
            episode.resolved_at, episode.ending = at, ending
            self._closed.append(episode)
