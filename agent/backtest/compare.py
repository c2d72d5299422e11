"""Two policies over one history: what both say, and what only one of them says."""

from __future__ import annotations

from collections.abc import Sequence

from agent.backtest.result import Comparison, Episode, Pair


def compare(first: Sequence[Episode], second: Sequence[Episode]) -> Comparison:
    """Return the pairs of verdicts of one kind on one subject that stood at the same time, and the rest of each."""
    left = list(second)
    both: list[Pair] = []
    only_first: list[Episode] = []
    for episode in first:
        twin = next((each for each in left if _same(episode, each)), None)
        if twin is None:
            only_first.append(episode)
        else:
            left.remove(twin)
            both.append(Pair(first=episode, second=twin, later_seconds=twin.confirmed_at - episode.confirmed_at))
    return Comparison(both=tuple(both), only_first=tuple(only_first), only_second=tuple(left))


def _same(one: Episode, other: Episode) -> bool:
    if (one.kind, one.subject) != (other.kind, other.subject):
        return False
    return _before_end(one.suspected_at, other) and _before_end(other.suspected_at, one)


def _before_end(at: float, episode: Episode) -> bool:
    return episode.resolved_at is None or at <= episode.resolved_at
