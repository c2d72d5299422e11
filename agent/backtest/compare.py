"""Two policies over one history: what both say, and what only one of them says."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from agent.backtest.result import Comparison, Episode, Pair
from agent.subject import Subject


def compare(first: Sequence[Episode], second: Sequence[Episode]) -> Comparison:
    """Return the pairs of verdicts of one kind on one subject that stood at the same time, and the rest of each."""
    both: list[Pair] = []
    only_first: list[Episode] = []
    # Of one kind and subject, one ends before the next is suspected: those that ended before need not be looked at.
    left: dict[tuple[str, Subject], deque[tuple[int, Episode]]] = {}
    for number, episode in enumerate(second):
        left.setdefault((episode.kind, episode.subject), deque()).append((number, episode))
    alone: set[int] = set(range(len(second)))
    for episode in first:
        others = left.get((episode.kind, episode.subject), deque())
        while others and not _before_end(episode.suspected_at, others[0][1]):
            others.popleft()
        if others and _same(episode, others[0][1]):
            number, twin = others.popleft()
            alone.discard(number)
            both.append(Pair(first=episode, second=twin, later_seconds=twin.confirmed_at - episode.confirmed_at))
        else:
            only_first.append(episode)
    only_second = tuple(each for number, each in enumerate(second) if number in alone)
    return Comparison(both=tuple(both), only_first=tuple(only_first), only_second=only_second)


def _same(one: Episode, other: Episode) -> bool:
    return _before_end(one.suspected_at, other) and _before_end(other.suspected_at, one)


def _before_end(at: float, episode: Episode) -> bool:
    return episode.resolved_at is None or at <= episode.resolved_at
