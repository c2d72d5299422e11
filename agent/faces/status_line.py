"""The agent's state in one line, for `systemctl status`."""

from __future__ import annotations

from collections import Counter

from agent.retained import count_of
from agent.state import AgentState, Judgement


def status_line(state: AgentState, judgement: Judgement | None) -> str:
    """Return how many engines there are in which phase, and what is wrong; no names: a log of them is kept."""
    phases = Counter(engine.phase for engine in state.engines)
    engines = ", ".join(f"{number} {phase}" for phase, number in sorted(phases.items())) or "none"
    found = Counter(
        verdict.tier
        for verdict in (judgement.verdicts if judgement is not None else ())
        if verdict.phase == "confirmed"
    )
    wrong = ", ".join(f"{count_of(found[tier], 'verdict')} to {tier}" for tier in ("page", "warn") if found[tier])
    return f"engines: {engines}; {wrong or 'nothing is wrong'}"
