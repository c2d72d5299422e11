"""Folds a bundle's records into judgements, as the live agent did when it saw these states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from agent.bundle.format import BundleError, Change, Record, Usuals
from agent.judge import Judge
from agent.policy.types import Policy
from agent.state import AgentState, Judgement

MOST_NAMES = 4096  # of engines: something is kept of each for a while
MOST_SAID = 4096  # of one state


class Fold:
    """Judges by ``policy``. An agent that was restarted began anew with what had been learned, and so does this.

    ``lives``: agents that were seen. ``passed_over``: states that were not later than the one before. ``errors``: how
    often what of judging has failed, by name.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._judge: Judge | None = None
        self._started_at = 0.0
        self._last = 0.0
        self._usual: Usuals | None = None
        self.lives = 0
        self.passed_over = 0
        self._said: list[Change] = []
        self._names: set[str] = set()
        self.errors: Counter[str] = Counter()

    def judgements(self, records: Iterable[Record]) -> Iterator[tuple[AgentState, Judgement]]:
        """Yield each state with what is made of it; raises :class:`BundleError` for more engines than can be kept."""
        for record in records:
            if isinstance(record, AgentState):
                judgement = self._judged(record)
                if judgement is not None:
                    yield record, judgement
            elif isinstance(record, Usuals):
                self._usual = record
            else:
                self._hear(record)

    def said(self) -> tuple[Change, ...]:
        """Return what the live judges said between the state that came last and the one before it; once."""
        said, self._said = self._said, []
        return tuple(said)

    def _hear(self, change: Change) -> None:
        if len(self._said) < MOST_SAID:
            self._said.append(change)

    def _judged(self, state: AgentState) -> Judgement | None:
        if self._judge is None or state.started_at != self._started_at:
            learned = self._judge.baselines() if self._judge is not None else None
            usual = self._usual
            self._judge = Judge(
                self._policy,
                usual.baselines if usual else learned,
                self._failed,
                tracks=usual.tracks if usual else None,
            )
            self._started_at = state.started_at
            self.lives += 1
        elif state.monotonic <= self._last:
            self.passed_over += 1
            return None
        self._last = state.monotonic
        self._names.update(engine.engine for engine in state.engines)
        if len(self._names) > MOST_NAMES:
            raise BundleError(f"more than {MOST_NAMES:,} engines by their names: that was never one node")
        return self._judge.look(state)

    def _failed(self, name: str, _error: Exception) -> None:
        self.errors[name] += 1
