"""What load balancers are told: each change of it as soon as its intent is written down, and never before."""

from __future__ import annotations

import logging
from functools import partial

from agent.balancer.moves import AGENT, Move, Moves
from agent.balancer.state import Weight

logger = logging.getLogger("kvtide.balancer")


class Telling:
    """``told`` by engine. Without ``moves`` nothing is written down, and all is told at once."""

    def __init__(self, moves: Moves | None) -> None:
        self.told: dict[str, Weight] = {}
        self._moves = moves
        self._on_its_way: dict[str, Move] = {}

    def tell(self, engine: str, weight: Weight, by: str = AGENT) -> None:
        """Have ``weight`` told, now or when its intent is written; other words for the same share are told at once."""
        before, waiting = self.told.get(engine), self._on_its_way.get(engine)
        if before is None or _same(before, weight):
            self._on_its_way.pop(engine, None)
            self.told[engine] = weight
        elif waiting is None or not _same(waiting.now, weight):
            move = self._on_its_way[engine] = Move(engine=engine, before=before, now=weight, by=by)
            if self._moves is None:
                self._decide(move, written=True)
            else:
                self._moves.begin(move, partial(self._decide, move))

    def forget(self, engine: str) -> None:
        """Drop an engine that is gone."""
        self.told.pop(engine, None)
        self._on_its_way.pop(engine, None)

    def let_go(self) -> None:
        """Give all engines all their share, but those that a person holds; what is on its way is not told any more."""
        self._on_its_way.clear()
        for engine, weight in self.told.items():
            if weight.step not in ("full", "person"):
                self.told[engine] = Weight(since=weight.since, why="the agent ends")

    def _decide(self, move: Move, written: bool) -> bool:
        if self._on_its_way.get(move.engine) is not move:
            return False
        del self._on_its_way[move.engine]
        if not written and move.takes:
            return False  # the next look finds that it is still to be done
        now = move.now
        logger.warning("%s: weight %d %%, %s: %s", move.engine, now.percent, now.mode, now.why or now.step)
        self.told[move.engine] = now
        return True


def _same(one: Weight, other: Weight) -> bool:
    return (one.percent, one.mode) == (other.percent, other.mode)
