"""Restart loops: how often an engine of one name came up again in the last 45 minutes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from agent.sources.host.inputs import Start
from agent.sources.host.state import RestartState

WINDOW_SECONDS = 45 * 60.0
MAX_NAMES = 256
MAX_STARTS = 16  # of one name; more in the window than that is a loop as well

History = dict[str, tuple[Start, ...]]


def remember(history: History, starts: Iterable[Start], now: float) -> History:
    """Return ``history`` with ``starts`` (each instance once), bounded. ``now``: Unix seconds.

    The last start before the window stays: it tells that the next one is a restart.
    """
    found = dict(history)
    for start in starts:
        known = found.pop(start.engine, ())
        if all(start.instance != other.instance for other in known):
            known = tuple(sorted((*known, start), key=lambda each: each.started_at))[-MAX_STARTS:]
        old = [each for each in known if each.started_at < now - WINDOW_SECONDS]
        found[start.engine] = (*old[-1:], *known[len(old) :])  # at the end: those heard of last are kept longest
    return dict(list(found.items())[-MAX_NAMES:])


def restarts(history: History, present: Collection[str], now: float) -> tuple[RestartState, ...]:
    """Return the restarts of each name in the window that ends ``now``; a name's first known start is none.

    A name that is not ``present`` has a row only while there is something to count.
    """
    found = []
    for engine, starts in history.items():
        count = sum(start.started_at >= now - WINDOW_SECONDS for start in starts[1:])
        if not count and engine not in present:
            continue
        found.append(RestartState(engine=engine, restarts=count))
    return tuple(sorted(found, key=lambda row: row.engine))
