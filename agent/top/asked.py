"""An agent as the program's source: it is asked once a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.state import AgentState
from agent.top.history import History, moment_of
from agent.top.live import Live
from agent.top.past import Past, Tides, history_of
from agent.top.seen import Seen


class AgentSource:
    """An agent at ``url``; ``opening`` makes what fetches its state, ``past`` fetches what it knows of before. While
    held, the screen stays as it was.
    """

    period = 1.0

    def __init__(
        self, url: str, opening: Callable[[], Callable[[], AgentState]], past: Callable[[], Tides] | None = None
    ) -> None:
        self._url = url
        self._live = Live(opening, self._tell)
        self._past = Past(past) if past is not None else None
        self._wanted = True  # the past: at the begin, and where there is a hole
        self._arrived: Callable[[], None] | None = None
        self._history = History()
        self._held: Seen | None = None

    def ask(self) -> None:
        """Begin to ask. What comes before :meth:`start` waits there."""
        self._live.start()

    def start(self, arrived: Callable[[], None]) -> None:
        """Begin to ask, unless that was begun, and to tell."""
        self._arrived = arrived
        self._live.start()
        if self._live.state() is not None:
            arrived()

    def stop(self) -> None:
        """Ask no more."""
        self._live.stop()

    def seen(self) -> Seen:
        """Return what is known now."""
        state = self._live.state()
        problem, since = self._live.problem()
        if state is not None:
            self._remember(state, lost=bool(problem))
        if self._held is not None:
            return Seen(
                self._url,
                self._held.state,
                self._held.history,
                self._live.age(),
                problem,
                since,
                frozen=True,
            )
        return Seen(self._url, state, self._history, self._live.age(), problem, since)

    def seek(self, seconds: float) -> None:
        """There is only now."""

    def pause(self) -> None:
        """Hold the screen, or go on."""
        if self._held is not None:
            self._held = None
        else:
            seen = self.seen()
            self._held = replace(seen, history=seen.history.copy())

    def faster(self, factor: float) -> None:
        """Time goes as it goes."""

    def _tell(self) -> None:
        if self._arrived is not None:
            self._arrived()

    def _remember(self, state: AgentState, *, lost: bool) -> None:
        if self._past is not None:
            if lost:
                self._wanted = True
            elif self._wanted:
                self._wanted = False
                self._past.ask()
            tides = self._past.take()
            if tides:
                self._history = history_of(tides, state)
        self._history.take(moment_of(state))
