"""A recording as the program's source: it is played, paused and sought."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from agent.top.player import Player
from agent.top.recording import Recording
from agent.top.seen import Seen


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
