"""How long a history was watched, and how much of it is missing."""

from __future__ import annotations

_LEAST_GAP_SECONDS = 5.0
_TIMES = 4.0  # a step is a gap when it is so much longer than those on both sides


class Watch:
    """Takes the times of states. A change of the sampling rate is no gap: its neighbour is as long."""

    def __init__(self) -> None:
        self.states = 0
        self.gaps = 0
        self.gap_seconds = 0.0
        self._began = self._last = 0.0
        self._before = 0.0
        self._step: float | None = None

    def take(self, at: float) -> None:
        """Take the next state's time, in seconds."""
        if not self.states:
            self._began = at
        else:
            self._close(at - self._last)
            self._step = at - self._last
        self.states += 1
        self._last = at

    def _close(self, after: float) -> None:
        """Judge the step before the last one, now that its neighbours are known."""
        step = self._step
        if step is None:
            return
        if step > _LEAST_GAP_SECONDS and step > _TIMES * max(self._before, after):
            self.gaps += 1
            self.gap_seconds += step
        self._before = step

    def finish(self) -> None:
        """There are no more states."""
        self._close(0.0)
        self._step = None

    @property
    def began(self) -> float:
        """The first state's time."""
        return self._began

    @property
    def ended(self) -> float:
        """The last state's time."""
        return self._last

    @property
    def watched_seconds(self) -> float:
        """The time between them, without the gaps."""
        return self._last - self._began - self.gap_seconds
