"""What a judge said of one scenario: each verdict from its confirmation to its end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.judge import Judge
from agent.policy.types import DEFAULT, TEXTBOOK
from agent.signals.node import NodeTracker
from agent.signals.types import NodeSignals
from agent.state import AgentState, Subject, Tier, Verdict
from bench.corpus.scenario import Label, Scenario

PROFILES = {"default": DEFAULT, "textbook": TEXTBOOK}
_RANK: dict[Tier, int] = {"note": 0, "warn": 1, "page": 2}


@dataclass(slots=True)
class Episode:
    """A confirmed verdict. ``confirmed``, ``ended``, ``paged``: monotonic seconds; None: it was not, or is still there.

    ``tier``: the highest that it had. ``sentence``: what it said when it was confirmed or rose to that tier.
    """

    kind: str
    subject: Subject
    confirmed: float
    tier: Tier
    sentence: str
    paged: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A scenario with what both profiles said. ``seconds``: its length; ``states``: how many there were."""

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


class _Listener:
    """Turns judgement after judgement into episodes."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self._open: dict[tuple[str, Subject], Episode] = {}

    def take(self, now: float, verdicts: tuple[Verdict, ...]) -> None:
        """Take the verdicts at ``now``."""
        told = {
            (each.kind, each.subject): each for each in verdicts if each.phase == "confirmed" and each.tier != "note"
        }
        for key in [key for key in self._open if key not in told]:
            self._open.pop(key).ended = now
        for key, verdict in told.items():
            episode = self._open.get(key)
            if episode is None:
                episode = Episode(*key, now, verdict.tier, verdict.sentence)
                self._open[key] = episode
                self.episodes.append(episode)
            elif _RANK[verdict.tier] > _RANK[episode.tier]:
                episode.tier, episode.sentence = verdict.tier, verdict.sentence
            if verdict.tier == "page" and episode.paged is None:
                episode.paged = now


class _Shared:
    """A tracker that two judges ask about the same state, one after the other."""

    def __init__(self, tracker: NodeTracker) -> None:
        self._tracker = tracker
        self._state: AgentState | None = None
        self._signals = NodeSignals()

    def take(self, state: AgentState) -> NodeSignals:
        """Return the signals at ``state``."""
        if state is not self._state:
            self._state, self._signals = state, self._tracker.take(state)
        return self._signals


def listen(scenario: Scenario) -> Heard:
    """Judge one scenario in both profiles."""
    made = scenario.made()
    judges = {name: (Judge(policy), _Listener()) for name, policy in PROFILES.items()}
    if PROFILES["textbook"] == DEFAULT.model_copy(update={"profile": "textbook"}):
        # Signals follow from a policy's numbers, not from its profile: working them out takes most of the time.
        signals = _Shared(judges["default"][0]._tracker)
        judges["default"][0]._tracker = judges["textbook"][0]._tracker = signals  # type: ignore[assignment]
    began, until, states = 0.0, 0.0, 0
    for state in made.states:
        if not states:
            began = state.monotonic
        states += 1
        until = state.monotonic
        for judge, listener in judges.values():
            listener.take(until, judge.look(state).verdicts)
    return Heard(
        scenario, made.labels, began, until, states, {name: each.episodes for name, (_, each) in judges.items()}
    )
