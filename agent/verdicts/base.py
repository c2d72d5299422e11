"""What a detector says, and how saying it for long enough becomes a verdict. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from agent.policy.types import DEFAULT, Policy
from agent.signals.types import EngineSignals, NodeSignals, Reading, TenantSignals
from agent.sources.host.state import KilledState
from agent.state import AgentState, EngineState, PoolState, Tier, Verdict, VerdictPhase
from agent.subject import Subject
from agent.verdicts.endings import AWAY
from engine_hooks.detail import Detail

RESOLVED_SHOWN_SECONDS = 60.0
TIERS: tuple[Tier, ...] = ("note", "warn", "page")  # from what nobody is told to what gets somebody up


@dataclass(frozen=True, slots=True)
class Finding:
    """What a detector sees at one moment; see :class:`agent.state.Verdict`.

    ``confirm_seconds``: how long this must hold to be confirmed, where it is not the detector's time. ``ending``: how
    it is over once it is seen no more, where that is not the kind's own.
    """

    sentence: str
    remedy: str
    evidence: dict[str, float]
    tier: Tier = "page"
    confirm_seconds: float | None = None
    ending: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one engine at one moment. ``detail`` is None where none came or the last one is stale.

    ``running`` and ``waiting`` count requests; ``peers`` are the engines that are ours, by what others call them.
    ``engine`` is None for an engine without hooks; ``reading`` has what both kinds say, ``signals`` what it means over
    time. ``tenants``: the signals of this engine's tenants.
    """

    pool: PoolState | None
    detail: Detail | None = None
    running: int = 0
    waiting: int = 0
    peers: Mapping[str, str] = field(default_factory=dict)
    engine: EngineState | None = None
    reading: Reading | None = None
    signals: EngineSignals | None = None
    tenants: tuple[TenantSignals, ...] = ()
    policy: Policy = DEFAULT
    node_residue_bytes: int | None = None


class Detector(Protocol):
    """Judges one condition of one engine.

    ``confirm_seconds``: how long it must hold to be confirmed; ``clear_seconds``: how long it must be gone to be
    resolved, so that one which comes and goes is one verdict.
    """

    kind: str
    confirm_seconds: float
    clear_seconds: float

    def judge(self, facts: Facts) -> Finding | None:
        """Return what is wrong, or None when nothing is or it can't be known."""
        ...


@dataclass(frozen=True, slots=True)
class Gone:
    """What was here and is no more: an engine, for ``seconds`` with no successor, and what ran and waited then;
    ``silent``: its process is there. Or with a ``role``, processes of an engine that is here: ``up`` of ``expected``
    report.
    """

    engine: str
    hooked: bool
    seconds: float = 0.0
    running: int | None = None
    waiting: int | None = None
    silent: bool = False
    role: str = ""
    up: int = 0
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A node at one moment, with what its numbers mean over time, and what of it has gone. ``lost``: when GPUs that are
    lost were first seen to be, by label, in Unix seconds. ``killed``: processes that were killed for memory, as the
    host's source told them last, newest first.
    """

    state: AgentState
    signals: NodeSignals
    policy: Policy = DEFAULT
    gone: tuple[Gone, ...] = ()
    lost: Mapping[str, float] = field(default_factory=dict)
    killed: tuple[KilledState, ...] = ()


class NodeDetector(Protocol):
    """Judges one condition of whatever a node has: GPUs, processes, tenants, sources. See :class:`Detector`.

    ``of_absence``: it judges what is not there; otherwise a verdict on something that can't be seen now stays as it is.
    """

    kind: str
    confirm_seconds: float
    clear_seconds: float
    of_absence: bool

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield what is wrong with what; each subject once."""
        ...


@dataclass(frozen=True, slots=True)
class Track:
    """The life of one verdict. ``began``, ``changed`` and ``seen`` are monotonic seconds; ``finding`` is the last one.

    ``seen``: when the fault was last there. ``raised``: since when it is more than the note that it was confirmed as.
    ``confirmed``: since when it is, None before.
    """

    phase: VerdictPhase
    began: float
    changed: float
    finding: Finding
    seen: float
    ending: str = ""
    raised: float | None = None
    confirmed: float | None = None


def advance(
    track: Track | None,
    finding: Finding | None,
    now: float,
    confirm_seconds: float,
    clear_seconds: float = 0.0,
    *,
    ending: str = AWAY,
) -> Track | None:
    """Return the track after ``finding`` was (or was not) seen at ``now``.

    A suspicion that goes away leaves no trace; a confirmed verdict is resolved once the fault has been gone for
    ``clear_seconds``, shown for a while and forgotten. ``ending``: how it is over then.
    """
    if finding is None:
        if track is not None and track.phase == "confirmed" and now - track.seen < clear_seconds:
            return replace(track, raised=None)  # it is not worse now, so that has not held
        return ended(track, now, ending)
    needed = confirm_seconds if finding.confirm_seconds is None else finding.confirm_seconds
    if track is None or track.phase == "resolved":
        at_once = needed <= 0
        phase: VerdictPhase = "confirmed" if at_once else "suspect"
        return Track(phase, now, now, finding, now, confirmed=now if at_once else None)
    if track.phase == "suspect" and now - track.began >= needed:
        return Track("confirmed", track.began, now, finding, now, confirmed=now)
    if track.phase == "confirmed" and TIERS.index(finding.tier) > TIERS.index(track.finding.tier):
        return _raised(track, finding, now, needed)
    return Track(track.phase, track.began, track.changed, finding, now, confirmed=track.confirmed)


def _raised(track: Track, finding: Finding, now: float, needed: float) -> Track:
    """Return the track of a fault that is worse than it was confirmed as: that has to hold as long as if it were new.

    Of a note nobody was told so far: what is worse than that begins when it began to be.
    """
    tier, raised = track.finding.tier, now if track.raised is None else track.raised
    if now - raised >= needed:
        began, confirmed = (raised, now) if tier == "note" else (track.began, track.confirmed)
        return Track("confirmed", began, now, finding, now, confirmed=confirmed)
    return replace(track, finding=replace(finding, tier=tier), seen=now, raised=raised)


def passed_over(track: Track, seconds: float) -> Track:
    """Return the track after ``seconds`` of which nobody knows anything: nothing has held for the longer by them."""
    if track.phase == "suspect":
        return replace(track, began=track.began + seconds)
    return track if track.raised is None else replace(track, raised=track.raised + seconds)


def ended(track: Track | None, now: float, ending: str) -> Track | None:
    """Return the track after its fault has ended; ``ending`` says how."""
    if track is None or track.phase == "suspect":
        return None
    if track.phase == "confirmed":
        return Track("resolved", track.began, now, track.finding, track.seen, ending, confirmed=track.confirmed)
    return track if now - track.changed < RESOLVED_SHOWN_SECONDS else None


def verdict_of(kind: str, subject: Subject, track: Track, now: float, unix_now: float, *, held: bool) -> Verdict:
    """Return the verdict that people see; its times follow the wall clock as it is now."""
    return Verdict(
        kind=kind,
        phase=track.phase,
        since=unix_now - (now - track.began),
        changed=unix_now - (now - track.changed),
        confirmed=None if track.confirmed is None else unix_now - (now - track.confirmed),
        sentence=track.finding.sentence,
        remedy=track.finding.remedy,
        evidence=track.finding.evidence,
        subject=subject,
        tier=track.finding.tier,
        ending=track.ending,
        held=held,
    )
