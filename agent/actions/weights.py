"""Weights at the load balancer in the journal, as every other action is: intent before, outcome after, refusals."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from agent.actions.actions import Actions
from agent.actions.errors import JournalError
from agent.actions.executor import MINE, new_action
from agent.actions.own import WEIGHT
from agent.actions.types import Action, Plan, Refusal
from agent.balancer.marks import PersonMark
from agent.balancer.moves import Decide, Move
from agent.subject import Subject

logger = logging.getLogger("kvtide.actions")

GROWTH, PERSON = "unexplained_growth", "person"
UNDO = "The weight is given back step by step when it is calm; kvtide node up gives it back at once."


class WeightMoves:
    """What the balancer hands its moves to: see :class:`agent.balancer.moves.Moves`."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._refused: dict[str, str] = {}  # the last code, by engine

    def stops(self, engine: str) -> Refusal | None:
        """Return why no weight may be moved on an engine now, None where it may."""
        return self._actions.stops(WEIGHT, engine)

    def marked(self, engine: str) -> PersonMark | None:
        """Return how a person holds an engine at the load balancer."""
        mark = self._actions.mark_of(engine)
        if mark is None or mark.mark == "rollout":
            return None
        return PersonMark(mark=mark.mark, by=mark.by, why=mark.why)

    def begin(self, move: Move, decide: Decide) -> None:
        """See :class:`agent.balancer.moves.Moves`."""
        self._actions.tasks.beside(self._run(self._action(move), decide))

    def refuse(self, engine: str, refusal: Refusal | None) -> None:
        """See :class:`agent.balancer.moves.Moves`: counted and written once while its code stays the same."""
        before = self._refused.pop(engine, "")
        if refusal is None:
            return
        self._refused[engine] = refusal.code
        if refusal.code != before:
            self._actions.book.note_refusal(WEIGHT, engine, GROWTH, refusal)

    def keep(self, body: bytes) -> None:
        """See :class:`agent.balancer.moves.Moves`."""
        self._actions.book.keep_weights(body)

    def kept(self) -> bytes | None:
        """See :class:`agent.balancer.moves.Moves`."""
        return self._actions.book.weights if self._actions.opened else None

    async def _run(self, action: Action, decide: Decide) -> None:
        book = self._actions.book
        try:
            await book.intend(action, self._actions.policy.actions.answer_seconds)
        except JournalError as error:
            if not decide(False):
                book.refused(action.plan, Refusal(code="journal", text=str(error)))
            book.journal.put(replace(action, phase="refused", reason="the intent was not written in time"))
            return
        if decide(True):
            book.set(replace(action, verified="unknown"), "done", action.plan.sentence)
        else:
            book.set(replace(action, verified="unknown"), "refused", "something else was wanted meanwhile")

    def _action(self, move: Move) -> Action:
        now = self._actions.wall()
        by_agent = move.by == MINE
        plan = Plan(
            lever=WEIGHT,
            subject=Subject(scope="engine", engine=move.engine),
            targets=(),
            arguments={"percent": move.now.percent, "mode": move.now.mode},
            kind=GROWTH if by_agent else PERSON,
            sentence=move.now.why or "nothing is wrong any more",
            evidence={"percent_before": float(move.before.percent)},
            expected=None,
            undo=UNDO,
            lease_seconds=0.0,
            state_at=now,
            monotonic=self._actions.clock(),
        )
        return new_action(plan, "enforce", now, None, by=move.by)
