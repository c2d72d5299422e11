"""What planning must remember: for how many looks a verdict has stood, and what was tried about it in vain."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import Judgement, Verdict
from agent.subject import Subject

MOST_ENGINES = 1024  # names come and go with engines, and what was asked for on one is of use while it is there
LOOK_SECONDS = 0.75  # looks that come sooner, because something happened, are no further breach

Key = tuple[str, Subject]

# What asks for a smaller pool (see agent.actions.room): nothing is wrong, so there is nothing to calm down from.
IDLE, NEIGHBOUR = "kv_idle", "neighbour_short"
OFFERS = frozenset({IDLE, NEIGHBOUR})


def standing(judgement: Judgement) -> Iterator[Verdict]:
    """Yield the verdicts that ask for something: confirmed, in sight, and more than a note."""
    for verdict in judgement.verdicts:
        if verdict.phase == "confirmed" and verdict.tier != "note" and not verdict.held and not verdict.ending:
            yield verdict


def key_of(verdict: Verdict) -> Key:
    """What tells one verdict from another."""
    return verdict.kind, verdict.subject


class Memory:
    """Changes with each look."""

    def __init__(self) -> None:
        self._breaches: dict[Key, tuple[int, float]] = {}
        self._in_vain: dict[Key, dict[str, float]] = {}  # until when, by rung
        self._disturbed: dict[str, float] = {}  # the one where nothing was asked for longest first
        self._began: float | None = None
        self._now = 0.0

    def take(self, judgement: Judgement, now: float) -> None:
        """Count what stands; what no longer does is forgotten. ``now``: monotonic seconds."""
        self._now = now
        self._began = now if self._began is None else self._began
        found: dict[Key, tuple[int, float]] = {}
        for verdict in standing(judgement):
            number, at = self._breaches.get(key_of(verdict), (0, float("-inf")))
            found[key_of(verdict)] = (number + 1, now) if now - at >= LOOK_SECONDS else (number, at)
            if verdict.kind not in OFFERS:
                self._disturbed.pop(verdict.subject.engine, None)
                self._disturbed[verdict.subject.engine] = now
        while len(self._disturbed) > MOST_ENGINES:
            del self._disturbed[next(iter(self._disturbed))]
        self._breaches = found
        self._in_vain = {key: rungs for key, rungs in self._in_vain.items() if key in found}

    def breaches(self, kind: str, engine: str) -> int:
        """Return at how many looks in a row a verdict of this kind has stood on this engine or on what is of it."""
        found = (
            number
            for (each, subject), (number, _) in self._breaches.items()
            if each == kind and subject.engine == engine
        )
        return max(found, default=0)

    def in_vain(self, verdict: Verdict) -> frozenset[str]:
        """Return the rungs that did not help against a verdict while it has stood."""
        tried = self._in_vain.get(key_of(verdict), {})
        return frozenset(rung for rung, until in tried.items() if self._now < until)

    def did_not_help(self, kind: str, engine: str, rung: str, until: float = float("inf")) -> None:
        """Remember that a rung did not help against what stands, until then at most."""
        for key in self._breaches:
            if key[0] == kind and key[1].engine == engine:
                self._in_vain.setdefault(key, {})[rung] = until

    def calm_seconds(self, engine: str, now: float) -> float:
        """Return for how long nothing was asked for on an engine, since this agent looks at most."""
        since = self._disturbed.get(engine, self._began)
        return 0.0 if since is None else max(0.0, now - since)
