"""Folds a bundle's records into judgements, as the live agent did when it saw these states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from agent.bundle.format import Change, Record, Usuals
from agent.judge import Judge
from agent.policy.types import Policy
from agent.signals.baseline import Baselines
from agent.state import AgentState, Judgement


class Fold:
    """Judges by ``policy``. An agent that was restarted began anew with what had been learned, and so does this.

    ``lives``: agents that were seen. ``passed_over``: states that were not later than the one before. ``live``: what
    the live judges said of the states, by the number of the agent. ``errors``: how often what of judging has failed, by
    name.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._judge: Judge | None = None
        self._started_at = 0.0
        self._last = 0.0
        self._usual: Baselines | None = None
        self.lives = 0
        self.passed_over = 0
        self.live: list[tuple[int, Change]] = []
        self.errors: Counter[str] = Counter()

    def judgements(self, records: Iterable[Record]) -> Iterator[tuple[AgentState, Judgement]]:
        """Yield each state with what is made of it."""
        for record in records:
            if isinstance(record, AgentState):
                judgement = self._judged(record)
                if judgement is not None:
                    yield record, judgement
            elif isinstance(record, Usuals):
                self._usual = record.baselines
            else:
                self.live.append((self.lives, record))

    def _judged(self, state: AgentState) -> Judgement | None:
        if self._judge is None or state.started_at != self._started_at:
            learned = self._judge.baselines() if self._judge is not None else None
            self._judge = Judge(self._policy, self._usual or learned, self._failed)
            self._started_at = state.started_at
            self.lives += 1
        elif state.monotonic <= self._last:
            self.passed_over += 1
            return None
        self._last = state.monotonic
        return self._judge.look(state)

    def _failed(self, name: str, _error: Exception) -> None:
        self.errors[name] += 1
