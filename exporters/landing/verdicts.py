"""Verdicts of all scopes on the page, the most urgent first, and what of judging and recording does not work."""

from __future__ import annotations

import time
from html import escape

from agent.faces.verdicts import doubt, heading, since, told
from agent.faces.words import agent_troubles
from agent.state import AgentState, Verdict
from agent.units import human_seconds
from exporters.landing.markup import quiet


def box(state: AgentState) -> str:
    """Return the verdicts; nothing where there is nothing to say."""
    shown, rest = told(state)
    troubles = "".join(f'<div class="verdict warn">{escape(line)}</div>' for line in agent_troubles(state))
    return "".join((*(_verdict(verdict, state.at) for verdict in shown), quiet(rest), troubles))


def _verdict(verdict: Verdict, now: float) -> str:
    css = "resolved" if verdict.phase == "resolved" else verdict.tier
    at = since(verdict)
    when = f"{time.strftime('%H:%M:%S', time.localtime(at))} ({human_seconds(now - at)})"
    why = doubt(verdict)
    return (
        f'<div class="verdict {css}"><strong>{verdict.tier}: {escape(heading(verdict))}</strong> {verdict.phase} since '
        f"{when}{f' ({escape(why)})' if why else ''}<br>"
        f"{escape(verdict.sentence)} {escape(verdict.remedy)}</div>"
    )
