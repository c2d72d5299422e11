"""Verdicts, judgement by judgement, as lives: suspected, confirmed, resolved, and when. Pure."""

from __future__ import annotations

import msgspec

from agent.state import Subject, Tier, Verdict, VerdictPhase

MOST_LIVES = 10_000


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict that was confirmed. Times are Unix seconds; ``sentence``, ``remedy`` and ``evidence`` are the last.

    ``resolved_at``: None where it stood to the end, or ``ending`` says why nobody saw its end.
    """

    kind: str
    subject: Subject
    tier: Tier
    suspected_at: float
    confirmed_at: float
    resolved_at: float | None
    ending: str
    sentence: str
    remedy: str
    evidence: dict[str, float]


class Lives:
    """Bounded: what comes after ``MOST_LIVES`` is counted in ``left_out``. ``passed``: suspicions that went away."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, Subject], Verdict] = {}
        self._closed: list[Life] = []
        self.left_out = 0
        self.passed = 0

    def take(self, verdicts: tuple[Verdict, ...]) -> None:
        """Take the verdicts of the next judgement."""
        standing = {(each.kind, each.subject): each for each in verdicts}
        for key in self._open.keys() - standing.keys():
            self._close(self._open.pop(key), None)
        for key, verdict in standing.items():
            before = self._open.get(key)
            if verdict.phase == "resolved":
                if before is not None:
                    self._close(self._open.pop(key), verdict)
                continue
            if before is not None and _falls_back(before.phase, verdict.phase):
                self._close(self._open.pop(key), None)
            self._open[key] = verdict if before is None else _same(before, verdict)

    def ended(self, ending: str) -> None:
        """The agent ended: what stood then has no end that was seen. ``ending``: empty at the end of the recording."""
        for verdict in self._open.values():
            if verdict.phase == "confirmed":
                self._add(verdict, None, ending)
        self._open.clear()

    def all(self) -> tuple[Life, ...]:
        """Return the lives in the order of their confirmation."""
        return tuple(sorted(self._closed, key=lambda life: life.confirmed_at))

    def _close(self, verdict: Verdict, resolved: Verdict | None) -> None:
        if verdict.phase == "suspect":
            self.passed += 1
        elif resolved is None:
            self._add(verdict, None, "")
        else:
            self._add(verdict, resolved.changed, resolved.ending)

    def _add(self, verdict: Verdict, resolved_at: float | None, ending: str) -> None:
        if len(self._closed) >= MOST_LIVES:
            self.left_out += 1
            return
        self._closed.append(
            Life(
                kind=verdict.kind,
                subject=verdict.subject,
                tier=verdict.tier,
                suspected_at=verdict.since,
                confirmed_at=verdict.changed,
                resolved_at=resolved_at,
                ending=ending,
                sentence=verdict.sentence,
                remedy=verdict.remedy,
                evidence=verdict.evidence,
            )
        )


def _same(before: Verdict, now: Verdict) -> Verdict:
    """Return the verdict with its first times: what is told later follows a wall clock that may have been set."""
    if before.phase == now.phase == "confirmed":
        return msgspec.structs.replace(now, since=before.since, changed=before.changed)
    return now


def _falls_back(before: VerdictPhase, now: VerdictPhase) -> bool:
    """Return whether a confirmed one is a suspicion again: in between, it was resolved and forgotten."""
    return before == "confirmed" and now == "suspect"
