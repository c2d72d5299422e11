"""What a detector says, and how saying it for long enough becomes a verdict. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agent.state import PoolState, Verdict, VerdictPhase

RESOLVED_SHOWN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a detector sees at one moment. ``since``: a time for people, put into ``sentence`` by ``{since}``."""

    sentence: str
    remedy: str
    evidence: dict[str, float]


class Detector(Protocol):
    """Judges one condition of one engine. ``confirm_seconds``: how long it must hold to be confirmed."""

    kind: str
    confirm_seconds: float

    def judge(self, pool: PoolState) -> Finding | None:
        """Return what is wrong in ``pool``, or None when nothing is or it can't be known."""
        ...


@dataclass(frozen=True, slots=True)
class Track:
    """The life of one verdict. ``began`` and ``changed`` are monotonic seconds; ``finding`` is the last one."""

    phase: VerdictPhase
    began: float
    changed: float
    finding: Finding


def advance(track: Track | None, finding: Finding | None, now: float, confirm_seconds: float) -> Track | None:
    """Return the track after ``finding`` was (or was not) seen at ``now``.

    A suspicion that goes away leaves no trace; a confirmed verdict is resolved, shown for a while and forgotten.
    """
    if finding is None:
        if track is None or track.phase == "suspect":
            return None
        if track.phase == "confirmed":
            return Track("resolved", track.began, now, track.finding)
        return track if now - track.changed < RESOLVED_SHOWN_SECONDS else None
    if track is None or track.phase == "resolved":
        return Track("suspect", now, now, finding)
    if track.phase == "suspect" and now - track.began >= confirm_seconds:
        return Track("confirmed", track.began, now, finding)
    return Track(track.phase, track.began, track.changed, finding)


def verdict_of(kind: str, track: Track, now: float, unix_now: float) -> Verdict:
    """Return the verdict that people see; its times follow the wall clock as it is now."""
    return Verdict(
        kind=kind,
        phase=track.phase,
        since=unix_now - (now - track.began),
        changed=unix_now - (now - track.changed),
        sentence=track.finding.sentence,
        remedy=track.finding.remedy,
        evidence=track.finding.evidence,
    )
