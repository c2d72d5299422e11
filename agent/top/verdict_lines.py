"""Verdicts as lines: a head with tier, kind, subject and since when; then the sentence and what would help."""

from __future__ import annotations

import time
from collections.abc import Sequence

from agent.faces.verdicts import doubt, heading, since, urgency
from agent.retained import count_of
from agent.state import AgentState, Verdict
from agent.top.text import Line, cut_line, line, paragraph
from agent.units import human_seconds

INDENT = 7
OTHERS_SHOWN = 3  # heads of others that the first one's text leaves room for
_SIGNS = {"page": "PAGE", "warn": "WARN", "note": "NOTE"}


def verdicts_of(state: AgentState) -> list[Verdict]:
    """Return all verdicts, the most urgent first."""
    return sorted(state.judgement.verdicts if state.judgement else (), key=urgency)


def loud(state: AgentState) -> list[Verdict]:
    """Return those that somebody has to see to now: they stand, and are more than a note."""
    return [each for each in verdicts_of(state) if each.phase != "resolved" and each.tier != "note"]


def tag_of(verdict: Verdict) -> tuple[str, str]:
    """Return a verdict's tier as a word with its style; ``over`` for one that has ended."""
    if verdict.phase == "resolved":
        return "OVER", "over"
    return _SIGNS[verdict.tier], verdict.tier if verdict.tier != "note" else "bold"


def head_of(verdict: Verdict, now: float, cells: int) -> Line:
    """Return the first line of a verdict."""
    word, style = tag_of(verdict)
    at = since(verdict)
    text = f" {verdict.phase} since {clock(at)} ({human_seconds(now - at)})"
    gap = " " * (INDENT - len(word) - 2)
    return cut_line(line((f" {word} ", style), gap, (heading(verdict), "bold"), text), cells)


def body_of(verdict: Verdict, cells: int) -> list[Line]:
    """Return what a verdict says: doubt first, then the sentence, then what would help."""
    found: list[Line] = []
    if why := doubt(verdict):
        found += paragraph(f"{why[0].upper()}{why[1:]}.", cells, "dim", INDENT)
    found += paragraph(verdict.sentence, cells, "" if verdict.phase == "resolved" else "bold", INDENT)
    if verdict.remedy:
        found += paragraph(verdict.remedy, cells, "", INDENT)
    return found


def shortened(verdicts: Sequence[Verdict], now: float, cells: int, most: int | None) -> list[Line]:
    """Return verdicts, the most urgent first, in at most so many lines where that can be: something of the first one's
    sentence is always there, then as many heads and texts as there is room for, then how many are left out.
    """
    found: list[Line] = []
    room = 10_000 if most is None else max(3, most)
    for place, verdict in enumerate(verdicts):
        body, others = body_of(verdict, cells), len(verdicts) - place - 1
        least = min(len(body), 2) if place == 0 else 0
        if place and room < 1 + (others > 0):
            found.append(line((f"       and {count_of(others + 1, 'more verdict')} (5)", "dim")))
            break
        fits = max(least, room - 1 - min(others, OTHERS_SHOWN if place == 0 else others))
        drawn = body[:fits]
        if drawn and len(drawn) < len(body):  # the rest of it is in the view of verdicts
            drawn[-1] = (*cut_line(drawn[-1], cells - 6), (" … (5)", "dim"))
        found += [head_of(verdict, now, cells), *drawn]
        room -= 1 + len(drawn)
    return found


def clock(unix: float) -> str:
    """Return a time of day; the date, too, where it is another day."""
    try:
        then, now = time.localtime(unix), time.localtime()
        return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%b %d %H:%M:%S", then)
    except (OverflowError, ValueError, OSError):  # a file can say anything
        return f"{unix:g} s"
