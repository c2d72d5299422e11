"""Makes a bundle out of chunks: one state a minute from before, then every state of the last minutes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import inf
from pathlib import Path

from msgspec.structs import replace

from agent.bundle.format import BundleError, Change, Header, Writer, read
from agent.bundle.records import CHANGE, STANDING, STATE, USUALS, When, decoded, encoded, when_of
from agent.recorder.series import Chunk
from agent.state import AgentState
from agent.subject import Subject

Raw = tuple[int, bytes]
BEFORE_SECONDS = 86400.0  # one state a minute from so long before


class Ages:
    """When states were, in monotonic seconds of the agent whose first state is ``first``.

    A wall clock that is set does not move the states of that agent. Those of agents before it, which may have had
    another clock, lie before its first by how much earlier they say that they were.
    """

    def __init__(self, first: AgentState) -> None:
        self._first = When(first.at, first.monotonic, first.started_at)

    def of(self, when: When) -> float:
        """Return when a state with these times was."""
        first = self._first
        if when.started_at == first.started_at:
            return when.monotonic
        return first.monotonic - max(0.0, first.at - when.at)


def assemble(path: Path, header: Header, full: list[Chunk], coarse: list[Chunk], *, ages: Ages, since: float) -> int:
    """Write the bundle at ``path`` and return how many states it has.

    Every state from ``since`` (by ``ages``) on, as far back as there are any; one a minute from before. Raises OSError.
    What of the chunks can't be read is passed over.
    """
    # Two weeks would take a while to read, and states that come meanwhile could not be kept.
    coarse = [chunk for chunk in coarse if chunk.changed >= since - BEFORE_SECONDS]
    partial = path.with_name(f"{path.name}.part")
    try:
        with Writer(partial, header) as writer:
            states = 0
            for kind, body in _merged(full, coarse, ages, since):
                writer.raw(kind, body)
                states += kind == STATE
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return states


def _merged(full: list[Chunk], coarse: list[Chunk], ages: Ages, since: float) -> Iterator[Raw]:
    rest = _from(full, ages, since, inf)
    head = []
    for raw in rest:
        head.append(raw)
        if raw[0] == STATE:
            break
    begins = ages.of(when_of(head[-1][1])) if head else inf
    before = False
    for raw in _from(coarse, ages, since - BEFORE_SECONDS, begins):
        before = True
        yield raw
    yield from chain(head[-1:] if before else head, rest)


def _from(chunks: list[Chunk], ages: Ages, since: float, until: float) -> Iterator[Raw]:
    """Yield the records of the states from ``since`` to before ``until``; first what was known and stood then."""
    usuals: Raw | None = None
    standing: dict[tuple[str, Subject], Change] = {}
    begun = False
    for kind, body in _records(chunks):
        if kind == STATE:
            at = ages.of(when_of(body))
            if at >= until:
                return
            if not begun and at >= since:
                begun = True
                yield from chain([usuals] if usuals else [], map(encoded, standing.values()))
        if begun:
            if kind != STANDING:
                yield kind, body
        elif kind == USUALS:
            usuals = kind, body
        elif kind in (CHANGE, STANDING):
            _stand(standing, body)


def _stand(standing: dict[tuple[str, Subject], Change], body: bytes) -> None:
    change = decoded(STANDING, body)
    if isinstance(change, Change):
        key = change.verdict.kind, change.verdict.subject
        if change.verdict.phase == "confirmed":
            standing[key] = replace(change, standing=True)
        else:
            standing.pop(key, None)


def _records(chunks: list[Chunk]) -> Iterator[Raw]:
    for chunk in chunks:
        try:
            yield from read(chunk.path).raw()
        except BundleError:
            continue  # thrown away meanwhile, or damaged: what comes after it counts all the same
