"""Verdicts of all scopes as a block for terminals, and what of judging and recording does not work."""

from __future__ import annotations

import time

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from agent.faces.lines import BAD
from agent.faces.verdicts import doubt, heading, since, told
from agent.faces.words import agent_troubles
from agent.state import AgentState, Verdict
from agent.units import human_seconds

_STYLES = {"page": f"bold reverse {BAD}", "warn": "bold #e69f00"}
_WIDTH = 7  # of a tier in its column


def block(state: AgentState) -> RenderableType | None:
    """Return the block, or None where there is nothing to say."""
    shown, rest = told(state)
    parts = [_verdict(verdict, state.at) for verdict in shown]
    parts += [Text(line, style="dim") for line in ([rest] if rest else [])]
    parts += [Text(line, style="yellow") for line in agent_troubles(state)]
    return Group(*parts, Text()) if parts else None


def _verdict(verdict: Verdict, now: float) -> RenderableType:
    over = verdict.phase == "resolved"
    tier, style = ("over", "bold #009e73") if over else (verdict.tier, _STYLES[verdict.tier])
    at = since(verdict)
    head = Text.assemble((f" {tier.upper()} ", style), " " * (_WIDTH - len(tier) - 2), (heading(verdict), "bold"))
    head.append(f" {verdict.phase} since {time.strftime('%H:%M:%S', time.localtime(at))} ({human_seconds(now - at)})")
    body = [Text.assemble((verdict.sentence, "" if over else "bold"), f" {verdict.remedy}")]
    if why := doubt(verdict):
        body.insert(0, Text(f"{why[0].upper()}{why[1:]}.", style="dim"))
    return Group(head, *(Padding(each, (0, 0, 0, _WIDTH)) for each in body))
