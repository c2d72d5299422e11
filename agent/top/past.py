"""What the agent still knows of the minutes before somebody looked: sparklines are full at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence

from agent.errors import KvtideError
from agent.state import AgentState
from agent.tide import STEP_SECONDS
from agent.tide import Moment as Tide
from agent.top.history import MOST_ENGINES, MOST_MOMENTS, History, Moment, Point, Who

Tides = Mapping[str, Sequence[Tide]]


def history_of(tides: Tides, state: AgentState) -> History:
    """Return the moments before ``state``, by the agent's own clock. Where an engine with hooks and one without have
    the same label, what the agent kept is taken for the first's.
    """
    hooked = {each.engine for each in state.engines}
    found: dict[int, dict[Who, Point]] = {}
    for label, rows in list(tides.items())[:MOST_ENGINES]:
        who = Who(label, hooked=label in hooked)
        for row in rows[-MOST_MOMENTS:]:
            monotonic = state.monotonic - (state.at - row.at)
            if monotonic < state.monotonic:
                place = int(monotonic // STEP_SECONDS)
                found.setdefault(place, {})[who] = Point(row.held, row.growth, row.acceleration)
    return History((Moment(place * STEP_SECONDS, found[place]) for place in sorted(found)), STEP_SECONDS)


class Past:
    """Calls ``fetch`` on a thread of its own when it is told to; a daemon, as it may hang."""

    def __init__(self, fetch: Callable[[], Tides]) -> None:
        self._fetch = fetch
        self._thread: threading.Thread | None = None
        self._tides: Tides | None = None

    def ask(self) -> None:
        """Begin to ask, unless that is under way."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="kvtide-top-past", daemon=True)
            self._thread.start()

    def take(self) -> Tides | None:
        """Return what came since this was called last; None for nothing."""
        found, self._tides = self._tides, None
        return found

    def _run(self) -> None:
        # An agent that does not tell, or tells nonsense: what is seen from now on is drawn.
        with contextlib.suppress(KvtideError):
            self._tides = self._fetch()
