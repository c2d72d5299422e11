"""Whether a replay says what the live agent said. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from agent.bundle.header import Change
from agent.subject import Subject

_Key = tuple[int, float, str, Subject, str]
SHOWN = 10
MOST_KEYS = 20_000


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of verdicts: how many both say, what only the live agent said, and what only the replay says.

    ``before``: verdicts that stood when the recording began; how they came is not in it.
    ``left_out``: changes that were too many to be compared.
    """

    same: int
    only_live: tuple[str, ...]
    only_replay: tuple[str, ...]
    before: int
    left_out: int = 0


class Comparison:
    """Takes states in their order, and what the live agent and the replay said of each.

    States that are a minute apart say nothing of the second in which a verdict changed: those are not compared. What is
    more than ``MOST_KEYS`` is left out.
    """

    def __init__(self) -> None:
        self._live: Counter[_Key] = Counter()
        self._replayed: Counter[_Key] = Counter()
        self._stood: set[tuple[str, Subject]] = set()
        self._agent, self._monotonic, self._own = 0, 0.0, False
        self._left_out = 0

    def state(self, agent: int, monotonic: float, *, own: bool) -> None:
        """Begin a state of the agent of that number; ``own``: it came in the live agent's own step."""
        self._agent, self._monotonic, self._own = agent, monotonic, own

    def said(self, changes: Iterable[Change]) -> None:
        """Note what the live agent said of the state, and what it says that stood before the next."""
        for change in changes:
            if not change.standing:
                self._note(self._live, change)
            elif len(self._stood) < MOST_KEYS:
                self._stood.add((change.verdict.kind, change.verdict.subject))

    def replayed(self, changes: Iterable[Change]) -> None:
        """Note what the replay says of it."""
        for change in changes:
            self._note(self._replayed, change)

    def likeness(self) -> Likeness:
        """Return how the replay compares with what the live agents said."""
        live, replayed = (
            Counter({key: number for key, number in found.items() if key[2:4] not in self._stood})
            for found in (self._live, self._replayed)
        )
        return Likeness(
            same=(live & replayed).total(),
            only_live=_words(live - replayed),
            only_replay=_words(replayed - live),
            before=len(self._stood),
            left_out=self._left_out,
        )

    def _note(self, found: Counter[_Key], change: Change) -> None:
        if not self._own or change.monotonic != self._monotonic:
            return
        verdict = change.verdict
        key = self._agent, change.monotonic, verdict.kind, verdict.subject, verdict.phase
        if len(found) < MOST_KEYS or key in found:
            found[key] += 1
        else:
            self._left_out += 1


def _words(keys: Counter[_Key]) -> tuple[str, ...]:
    told = [f"{kind} {subject}: {phase}" for _, _, kind, subject, phase in sorted(keys.elements())]
    more = len(told) - SHOWN
    return (*told[:SHOWN], f"and {more:,} more") if more > 0 else tuple(told)
