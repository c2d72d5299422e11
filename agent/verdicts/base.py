"""What a detector says, and how saying it for long enough becomes a verdict. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.state import PoolState, Verdict, VerdictPhase
from engine_hooks.detail import Detail

RESOLVED_SHOWN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a detector sees at one moment; see :class:`agent.state.Verdict`."""

    sentence: str
    remedy: str
    evidence: dict[str, float]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one engine at one moment. ``detail`` is None where none came or the last one is stale.

    ``running`` and ``waiting`` count requests; ``peers`` are the engines that are ours, by what others call them.
    """

    pool: PoolState | None
    detail: Detail | None = None
    running: int = 0
    waiting: int = 0
    peers: Mapping[str, str] = field(default_factory=dict)


class Detector(Protocol):
    """Judges one condition of one engine. ``confirm_seconds``: how long it must hold to be confirmed."""

    kind: str
    confirm_seconds: float

    def judge(self, facts: Facts) -> Finding | None:
        """Return what is wrong, or None when nothing is or it can't be known."""
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
