"""Verdicts of all scopes in words, what is most urgent first. Terminal and page share it: no rich."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.retained import count_of
from agent.state import AgentState, EngineState, Verdict

_ORDER = {"page": 0, "warn": 1, "note": 2}
_PHASES = {"confirmed": 0, "suspect": 1, "resolved": 2}
MOST_SHOWN = 12


class Told(NamedTuple):
    """``shown``: the verdicts to show, the most urgent first; ``rest``: a sentence on the others, or nothing."""

    shown: tuple[Verdict, ...]
    rest: str


def told(state: AgentState) -> Told:
    """Return the verdicts of a node: pages, then warnings; what is over comes last, notes are only counted."""
    verdicts = state.judgement.verdicts if state.judgement is not None else ()
    loud = sorted((each for each in verdicts if each.tier != "note"), key=urgency)
    notes = sum(each.tier == "note" and each.phase != "resolved" for each in verdicts)
    more = len(loud) - MOST_SHOWN
    parts = [count_of(more, "more verdict")] if more > 0 else []
    parts += [count_of(notes, "note")] if notes else []
    where = "not shown: kvtide status --json | jq .judgement.verdicts"
    return Told(tuple(loud[:MOST_SHOWN]), f"{' and '.join(parts)} {where}" if parts else "")


def of_engine(engine: EngineState) -> tuple[Verdict, ...]:
    """Return an engine's own verdicts that stand and are more than a note."""
    return tuple(each for each in engine.verdicts if each.phase != "resolved" and each.tier != "note")


def pointer(verdicts: Iterable[Verdict]) -> str:
    """Return where the verdicts on an engine are told, by kind."""
    kinds = list(dict.fromkeys(each.kind for each in verdicts))
    return f"See above: {', '.join(kinds)}." if kinds else ""


def heading(verdict: Verdict) -> str:
    """Return what it is, on what, and how far it has come."""
    return f"{verdict.kind} {verdict.subject}".strip()


def since(verdict: Verdict) -> float:
    """Return since when it is what its phase says, in Unix seconds: suspected, confirmed or over."""
    if verdict.phase == "suspect":
        return verdict.since
    if verdict.phase == "confirmed" and verdict.confirmed is not None:
        return verdict.confirmed
    return verdict.changed


def doubt(verdict: Verdict) -> str:
    """Return what makes one doubtful or has ended it; nothing where that is plain."""
    if verdict.held:
        return "what it is about can't be seen now: this is how it was"
    return verdict.ending


def urgency(verdict: Verdict) -> tuple[bool, int, int]:
    """Return what sorts verdicts: the most urgent first, what is over last."""
    return verdict.phase == "resolved", _ORDER[verdict.tier], _PHASES[verdict.phase]
