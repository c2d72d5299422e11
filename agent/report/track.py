"""Series of a recording, thinned to what a picture can show. Sizes are blocks or bytes, times Unix seconds."""

from __future__ import annotations

from collections.abc import Iterable

MOST_POINTS = 4096  # of one series, before every second one is left out


class Track:
    """Values of several names at the same moments. None: not known then, and nothing is drawn.

    Bounded: of more than ``MOST_POINTS`` moments every second one goes, and from then on every second new one. What is
    left out is not lost for a peak: of two moments the one stays where ``peak`` (a name) was higher.
    """

    def __init__(self, names: Iterable[str], peak: str) -> None:
        self.at: list[float] = []
        self.values: dict[str, list[float | None]] = {name: [] for name in names}
        self._peak = peak
        self._every = 1
        self._since = 0

    def add(self, at: float, values: dict[str, float | None]) -> None:
        """Add a moment; a name that ``values`` lacks is not known then."""
        self._since += 1
        if self.at and self._since < self._every:
            # Not a moment of its own, but its peak counts.
            if _higher(values.get(self._peak), self.values[self._peak][-1]):
                self._set(-1, at, values)
            return
        self._since = 0
        self.at.append(at)
        for name, series in self.values.items():
            series.append(values.get(name))
        if len(self.at) > MOST_POINTS:
            self._thin()

    def known(self, name: str) -> bool:
        """Return whether ``name`` was ever known."""
        return any(value is not None for value in self.values[name])

    def most(self, name: str) -> float | None:
        """Return the highest value of ``name``, None without any."""
        return max((value for value in self.values[name] if value is not None), default=None)

    def last(self, name: str) -> float | None:
        """Return the last known value of ``name``."""
        return next((value for value in reversed(self.values[name]) if value is not None), None)

    def _set(self, place: int, at: float, values: dict[str, float | None]) -> None:
        self.at[place] = at
        for name, series in self.values.items():
            series[place] = values.get(name)

    def _thin(self) -> None:
        peak = self.values[self._peak]
        keep = [
            place + 1 if place + 1 < len(peak) and _higher(peak[place + 1], peak[place]) else place
            for place in range(0, len(peak), 2)
        ]
        self.at = [self.at[place] for place in keep]
        self.values = {name: [series[place] for place in keep] for name, series in self.values.items()}
        self._every *= 2


def _higher(one: float | None, other: float | None) -> bool:
    return one is not None and (other is None or one > other)
