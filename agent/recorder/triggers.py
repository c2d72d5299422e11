"""What is worth a bundle of its own: a verdict that is confirmed, an allocation that failed, a process that was killed.

Pure: one state and its judgement after the other.
"""

from __future__ import annotations

from agent.bundle.header import Change
from agent.state import AgentState, Judgement, Verdict
from agent.subject import Subject
from engine_hooks.allocator import OOM

_Key = tuple[str, Subject]


class Triggers:
    """Keeps what was there before. What the first state already has began before we looked, and asks for nothing."""

    def __init__(self) -> None:
        self._verdicts: dict[_Key, Verdict] = {}
        self._ooms: set[tuple[str, str, int, float]] | None = None
        self._kills: int | None = None

    def standing(self, monotonic: float) -> tuple[Change, ...]:
        """Return the verdicts of the last state, as changes at ``monotonic``."""
        return tuple(Change(monotonic=monotonic, verdict=verdict, standing=True) for verdict in self._verdicts.values())

    def changes(self, state: AgentState, judgement: Judgement) -> tuple[Change, ...]:
        """Return the verdicts that are new, in a new phase, or more than the note that they were confirmed as."""
        now = {(verdict.kind, verdict.subject): verdict for verdict in judgement.verdicts}
        before, self._verdicts = self._verdicts, now
        return tuple(
            Change(monotonic=state.monotonic, verdict=verdict)
            for key, verdict in now.items()
            if key not in before or before[key].phase != verdict.phase or _raised(before[key], verdict)
        )

    def reasons(self, state: AgentState, changes: tuple[Change, ...]) -> tuple[str, ...]:
        """Return what happened, in words."""
        found = [
            f"{change.verdict.kind} {change.verdict.subject}"
            for change in changes
            if change.verdict.phase == "confirmed" and change.verdict.tier != "note"
        ]
        ooms = {
            (each.engine, each.process, each.pid, each.event.at) for each in state.failures if each.event.kind == OOM
        }
        if self._ooms is not None and (fresh := ooms - self._ooms):
            found.append(f"out of memory: {', '.join(sorted({engine or process for engine, process, *_ in fresh}))}")
        self._ooms = ooms
        if state.host is not None:
            kills = sum(state.host.kills_total.values())
            if self._kills is not None and kills > self._kills:
                found.append("killed by the kernel for want of memory")
            self._kills = kills
        return tuple(found)


def _raised(before: Verdict, now: Verdict) -> bool:
    """Return whether nobody was told of a verdict so far, and now somebody is."""
    return now.phase == "confirmed" and before.tier == "note" != now.tier
