"""The two sources of the program: an agent that is asked once a second, and a recording that is played."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from agent.state import AgentState
from agent.top.history import History, moment_of
from agent.top.live import Live
from agent.top.player import Player
from agent.top.recording import Recording
from agent.top.seen import Seen


class AgentSource:
    """An agent at ``url``; ``opening`` makes what fetches its state. While held, the screen stays as it was."""

    period = 1.0

    def __init__(self, url: str, opening: Callable[[], Callable[[], AgentState]]) -> None:
        self._url, self._opening = url, opening
        self._live: Live | None = None
        self._history = History()
        self._held: Seen | None = None

    def start(self, arrived: Callable[[], None]) -> None:
        """Begin to ask."""
        self._live = Live(self._opening, arrived)
        self._live.start()

    def stop(self) -> None:
        """Ask no more."""
        if self._live is not None:
            self._live.stop()

    def seen(self) -> Seen:
        """Return what is known now."""
        if self._live is None:
            return Seen(self._url)
        state = self._live.state()
        if state is not None:
            self._history.take(moment_of(state))
        problem, since = self._live.problem()
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
        self._held = self.seen() if self._held is None else None

    def faster(self, factor: float) -> None:
        """Time goes as it goes."""


class BundleSource:
    """The bundle at ``path``. Raises :class:`agent.errors.KvtideError` where it is none."""

    period = 0.25

    def __init__(self, path: Path, speed: float) -> None:
        self._recording = Recording(path)
        self._player = Player(self._recording, str(path), speed)
        self.seek, self.pause, self.faster = self._player.seek, self._player.pause, self._player.faster

    def start(self, _arrived: Callable[[], None]) -> None:
        """Begin to read."""
        self._recording.start()

    def stop(self) -> None:
        """Its thread ends with the process."""

    def seen(self) -> Seen:
        """Return the moment that is played now."""
        return self._player.seen(time.monotonic())
