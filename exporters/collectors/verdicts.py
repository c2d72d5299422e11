"""Verdicts that stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from agent.state import AgentState, Tier, Verdict, VerdictPhase
from exporters import catalogue as c
from exporters.collectors.base import Sample

MOST_VERDICTS = 256
_URGENCY = {tier: -number for number, tier in enumerate(get_args(Tier))}


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield the most urgent verdicts, which of them can't be seen now, and how many there are of each phase and tier.

    One that can't be seen is not known to have ended: without its series an alert on it would resolve.
    """
    if state.judgement is None:
        return
    verdicts = state.judgement.verdicts
    counts = Counter((each.phase, each.tier) for each in verdicts)
    for phase in get_args(VerdictPhase):
        for tier in get_args(Tier):
            yield Sample(c.VERDICTS, (phase, tier), counts[phase, tier])
    for verdict in sorted(verdicts, key=_urgency)[:MOST_VERDICTS]:
        about = verdict.subject
        labels = (about.scope, about.engine, about.tenant, about.gpu, about.process, about.source, verdict.kind)
        yield Sample(c.VERDICT, (*labels, verdict.phase, verdict.tier), 1)
        if verdict.held:
            yield Sample(c.VERDICT_HELD, labels, 1)


def _urgency(verdict: Verdict) -> tuple[bool, int, bool]:
    return verdict.phase == "resolved", _URGENCY[verdict.tier], verdict.held
