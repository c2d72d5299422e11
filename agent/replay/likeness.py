"""Whether a replay says what the live agent said. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from agent.bundle.header import Change
from agent.state import Subject

_Key = tuple[int, float, str, Subject, str]
SHOWN = 10


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of verdicts: how many both say, what only the live agent said, and what only the replay says.

    ``before``: verdicts that stood when the recording began; how they came is not in it.
    """

    same: int
    only_live: tuple[str, ...]
    only_replay: tuple[str, ...]
    before: int


class Comparison:
    """Takes the changes of a replay, each with the number of the agent and whether its state was in the live's step.

    States that are a minute apart say nothing of the second in which a verdict changed: those are not compared.
    """

    def __init__(self) -> None:
        self._replayed: Counter[_Key] = Counter()
        self._compared: set[tuple[int, float]] = set()

    def state(self, agent: int, monotonic: float) -> None:
        """Note a state that came in the live agent's own step."""
        self._compared.add((agent, monotonic))

    def replayed(self, agent: int, changes: tuple[Change, ...]) -> None:
        """Note what the replay says of it."""
        self._replayed.update(_key(agent, change) for change in changes)

    def of(self, live: list[tuple[int, Change]]) -> Likeness:
        """Return how the replay compares with what the ``live`` agents said."""
        stood = {key[2:4] for key in (_key(*each) for each in live if each[1].standing)}
        said = self._comparable((_key(*each) for each in live if not each[1].standing), stood)
        replayed = self._comparable(self._replayed.elements(), stood)
        return Likeness(
            same=(said & replayed).total(),
            only_live=_words(said - replayed),
            only_replay=_words(replayed - said),
            before=len(stood),
        )

    def _comparable(self, keys: Iterable[_Key], stood: set[tuple[str, Subject]]) -> Counter[_Key]:
        return Counter(key for key in keys if key[:2] in self._compared and key[2:4] not in stood)


def _key(agent: int, change: Change) -> _Key:
    verdict = change.verdict
    return agent, change.monotonic, verdict.kind, verdict.subject, verdict.phase


def _words(keys: Counter[_Key]) -> tuple[str, ...]:
    told = [f"{kind} {subject}: {phase}" for _, _, kind, subject, phase in sorted(keys.elements())]
    more = len(told) - SHOWN
    return (*told[:SHOWN], f"and {more:,} more") if more > 0 else tuple(told)
