"""Where a replay is: it plays a recording as fast as it is told, pauses and seeks."""

from __future__ import annotations

from agent.top.recording import Recording
from agent.top.seen import Played, Seen

SLOWEST, FASTEST = 0.125, 4096.0


class Player:
    """Plays ``recording`` from its begin, ``speed`` seconds of it a second. Has no clock: who calls gives the time."""

    def __init__(self, recording: Recording, source: str, speed: float = 1.0) -> None:
        self.recording, self._source, self.speed = recording, source, speed
        self.position = 0.0
        self.paused = False
        self._last: float | None = None

    def seek(self, seconds: float) -> None:
        """Go so many seconds on, or back."""
        self.position = min(self.recording.length, max(0.0, self.position + seconds))

    def pause(self) -> None:
        """Pause, or go on."""
        self.paused = not self.paused

    def faster(self, factor: float) -> None:
        """Play faster by ``factor``."""
        self.speed = min(FASTEST, max(SLOWEST, self.speed * factor))

    def seen(self, now: float) -> Seen:
        """Return what is seen at ``now`` (seconds of any clock that goes on)."""
        if self._last is not None and not self.paused:
            self.position = min(self.recording.length, self.position + self.speed * max(0.0, now - self._last))
        self._last = now
        found = self.recording.at(self.position)
        state, history = found if found is not None else (None, None)
        played = Played(
            self.position,
            self.recording.length,
            self.speed,
            self.paused,
            self.recording.loading,
            self._remark(nothing=state is None),
        )
        if history is None:
            return Seen(self._source, played=played)
        return Seen(self._source, state, history, played=played)

    def _remark(self, *, nothing: bool) -> str:
        recording = self.recording
        if recording.problem:
            return recording.problem
        if recording.loading:
            return ""
        if nothing:
            return "There is no state in it: nothing can be shown."
        if recording.thinned > 1:
            return f"It is long: one state of {recording.thinned} is shown, so that it fits into memory."
        return ""
