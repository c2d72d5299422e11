"""What becomes of actions: has it helped, is it calm again, is it still wanted. Looks at each state; orders nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.actions.executor import MINE
from agent.actions.fleet import FleetUndo
from agent.actions.measure import measured
from agent.actions.memory import OFFERS, Memory
from agent.actions.types import Action, Verified
from agent.actions.vetoes import Veto, vetoed
from agent.actions.watching import is_measured, moved, verified
from agent.policy.types import Policy
from agent.state import AgentState

LEAST_SECONDS = 1.0  # what is reported sooner may be of before


class Found(NamedTuple):
    """An action is known to have helped, or not. ``value``: the expected number now."""

    action: Action
    verdict: Verified
    value: float | None


class Follow:
    """Remembers when each action was first seen done, and for how long its number has been as expected."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._since: dict[str, float] = {}
        self._times: dict[str, int] = {}
        self._stepped: dict[str, float] = {}

    def measured(self, actions: tuple[Action, ...], state: AgentState) -> Iterator[Found]:
        """Yield the actions about which something is known now that was not before."""
        now = state.monotonic
        waiting = [each for each in actions if is_measured(each)]
        for memory in (self._since, self._times):
            for gone in set(memory) - {each.id for each in waiting}:
                del memory[gone]
        for action in waiting:
            expected = action.plan.expected
            seconds = now - self._since.setdefault(action.id, now)
            if expected is None or seconds < LEAST_SECONDS:
                continue
            value = measured(expected.signal, state, action.plan.subject, seconds)
            self._times[action.id] = self._times.get(action.id, 0) + 1 if moved(action, value) else 0
            stands = self._memory.breaches(action.plan.kind, action.plan.subject.engine) > 0
            verdict = verified(action, value, seconds=seconds, times=self._times[action.id], stands=stands)
            if verdict != "not_yet":
                yield Found(action, verdict, value)

    def unwanted(
        self,
        in_force: tuple[Action, ...],
        policy: Policy,
        off: str,
        vetoes: tuple[Veto, ...],
        *,
        now: float,
        undos: Sequence[FleetUndo],
    ) -> Iterator[tuple[Action, str]]:
        """Yield what must not be in force any more, with the reason. ``now``: Unix seconds; ``undos``: the fleet's."""
        for action in in_force:
            lever, engine = action.plan.lever, action.plan.subject.engine
            undo = next((each for each in undos if each.means(action.at, lever, engine)), None)
            if off:
                yield action, off
            elif undo is not None:
                yield action, f"undone by {undo.by}, for the fleet"
            elif action.until is not None and now >= action.until:
                yield action, "its time is over"
            elif action.by != MINE:
                continue
            elif action.verified == "did_not":
                yield action, "it did not help"
            elif policy.actions.mode_of(lever, engine) != "enforce":
                yield action, f"the mode of {lever} on {engine} is no longer enforce"
            elif (veto := vetoed(vetoes, lever, engine, now)) is not None:
                yield action, f"vetoed by {veto.by}"

    def calm(self, in_force: tuple[Action, ...], policy: Policy, now: float) -> Iterator[Action]:
        """Yield the action of each calm engine whose next step of taking back is due: the latest first.

        ``now``: monotonic seconds. What was done because it is calm stays.
        """
        latest = {
            each.plan.subject.engine: each for each in in_force if each.by == MINE and each.plan.kind not in OFFERS
        }
        step = policy.actions.undo_step_seconds
        self._stepped = {engine: at for engine, at in self._stepped.items() if now - at < step}
        for engine, action in latest.items():
            if self._memory.calm_seconds(engine, now) < policy.actions.calm_seconds:
                continue
            if engine not in self._stepped:
                self._stepped[engine] = now
                yield action
