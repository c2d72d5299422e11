"""What judges said of one scenario."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from agent.episodes import Episode, Episodes
from agent.judge import Judge
from agent.policy.types import DEFAULT, TEXTBOOK, Policy
from agent.signals.node import NodeTracker
from agent.signals.types import NodeSignals
from agent.state import AgentState, Verdict
from bench.corpus.scenario import Label, Scenario

PROFILES = {"default": DEFAULT, "textbook": TEXTBOOK}
BLIND_PERIODS = 5.0  # usual times between states: a longer one is a gap, in which nobody can know


@dataclass(frozen=True, slots=True)
class Heard:
    """A scenario with what both profiles said. Times are monotonic seconds; ``states``: how many there were."""

    scenario: Scenario | None
    labels: tuple[Label, ...]
    began: float
    until: float
    states: int
    episodes: dict[str, list[Episode]]

    def without_scenario(self) -> Heard:
        """Return it as it can be sent from one process to another: a recipe's function can't."""
        return replace(self, scenario=None)

    def of(self, scenario: Scenario) -> Heard:
        """Return it with its scenario."""
        return replace(self, scenario=scenario)


class Listener:
    """Turns judgement after judgement into episodes, by the monotonic clock; a verdict that stayed a note is none."""

    def __init__(self) -> None:
        self._episodes = Episodes()

    def take(self, state: AgentState, verdicts: tuple[Verdict, ...]) -> None:
        """Take the verdicts on ``state``."""
        self._episodes.take(verdicts, state.monotonic, state.monotonic - state.at)

    def finish(self) -> list[Episode]:
        """Return what was told, in the order of its confirmation; one that stands has no end."""
        told, _ = self._episodes.finish()
        return [each for each in told if each.told_at is not None]


def patient(labels: tuple[Label, ...], times: Sequence[float]) -> tuple[Label, ...]:
    """Return the labels with ``due_seconds`` as much later as nobody saw anything between the onset and that."""
    if len(times) < 2:
        return labels
    apart = [(later - earlier, earlier, later) for earlier, later in pairwise(times)]
    least = BLIND_PERIODS * median(each for each, _, _ in apart)
    gaps = [(earlier, later) for each, earlier, later in apart if each > least]
    return tuple(_later(label, gaps) for label in labels)


def _later(label: Label, gaps: Sequence[tuple[float, float]]) -> Label:
    due = label.due_seconds
    for began, end in gaps:
        begin = max(began, label.onset)
        if begin < min(end, label.onset + due):
            due += end - begin
    return replace(label, due_seconds=due)


class _Shared(NodeTracker):
    """A tracker that judges ask about the same state, one after the other."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._asked: AgentState | None = None
        self._told = NodeSignals()

    def take(self, state: AgentState) -> NodeSignals:
        """Return the signals at ``state``."""
        if state is not self._asked:
            self._asked, self._told = state, super().take(state)
        return self._told


def _judges() -> dict[str, Judge]:
    # Signals follow from a policy's numbers, not from its profile: working them out takes most of the time.
    if DEFAULT.model_copy(update={"profile": "textbook"}) == TEXTBOOK:
        shared = _Shared(DEFAULT)
        return {name: Judge(policy, tracker=shared) for name, policy in PROFILES.items()}
    return {name: Judge(policy) for name, policy in PROFILES.items()}


def listen(scenario: Scenario) -> Heard:
    """Judge one scenario in both profiles."""
    made = scenario.made()
    judges = {name: (judge, Listener()) for name, judge in _judges().items()}
    times = array("d")
    for state in made.states:
        times.append(state.monotonic)
        for judge, listener in judges.values():
            listener.take(state, judge.look(state).verdicts)
    began, until = (times[0], times[-1]) if times else (0.0, 0.0)
    episodes = {name: each.finish() for name, (_, each) in judges.items()}
    return Heard(scenario, patient(made.labels, times), began, until, len(times), episodes)
