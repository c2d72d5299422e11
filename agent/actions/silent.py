"""Plans for engines that have fallen silent: nothing new can be planned there, and what was wanted is refused aloud."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.actions.types import Plan
from agent.state import AgentState, Judgement, Verdict

_Key = tuple[str, str]  # kind of verdict, engine


class Silent:
    """Remembers what was last planned about each verdict for as long as that stands."""

    def __init__(self) -> None:
        self._last: dict[_Key, tuple[Plan, ...]] = {}

    def take(
        self, made: Sequence[tuple[Plan, ...]], judgement: Judgement, state: AgentState
    ) -> Iterator[tuple[Plan, ...]]:
        """Note the plans that were ``made`` at this look; yield those of before whose verdict stands out of sight.

        Their engine is not live in ``state``, so that the gate ``stale`` lets none of them pass.
        """
        standing = {_key(each) for each in judgement.verdicts if _asks(each)}
        self._last = {key: plans for key, plans in self._last.items() if key in standing}
        for plans in made:
            self._last[plans[0].kind, plans[0].subject.engine] = plans
        silent = {engine.engine for engine in state.engines if engine.phase != "live"}
        for verdict in judgement.verdicts:
            if _asks(verdict) and verdict.held and verdict.subject.engine in silent:
                plans = self._last.get(_key(verdict), ())
                if plans:
                    yield plans


def _asks(verdict: Verdict) -> bool:
    return verdict.phase == "confirmed" and verdict.tier != "note" and not verdict.ending


def _key(verdict: Verdict) -> _Key:
    return verdict.kind, verdict.subject.engine
