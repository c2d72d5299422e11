"""From the book to the state that every face is drawn from."""

from __future__ import annotations

from agent.actions.book import SHOWN, Book
from agent.actions.types import LIVE_PHASES, ActionsState
from agent.policy.types import Policy


def actions_state(book: Book, policy: Policy, off: str, not_written: str, budget_left: int) -> ActionsState:
    """Return what is told. ``off``, ``not_written``: why nothing can be done, empty where it can."""
    mode = policy.actions.strongest()
    newest = book.recent()[::-1]
    live = [each for each in newest if each.phase in LIVE_PHASES]
    ended = [each for each in newest if each.phase not in LIVE_PHASES]
    refused, done = book.counts()
    return ActionsState(
        mode=mode,
        problem="" if mode == "observe" else off or not_written,
        off=off,
        breaker=book.breaker,
        recent=(*live, *ended[: max(0, SHOWN - len(live))]),
        refused=refused,
        done=done,
        budget_left=None if mode == "observe" else budget_left,
    )
