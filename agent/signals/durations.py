"""For how long something has been so: a gap ends it, for nobody knows what was meanwhile."""

from __future__ import annotations


class Above:
    """Seconds for which a value has been above a limit without a break."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: float | None = None

    def take(self, now: float, above: bool | None) -> float:
        """Return the seconds up to ``now``; None, as it is where the value is not known, ends them."""
        if not above:
            self._since = None
            return 0.0
        if self._since is None:
            self._since = now
        return now - self._since

    def clear(self) -> None:
        """Begin anew."""
        self._since = None


def over(value: float | None, limit: float) -> bool | None:
    """Return whether ``value`` is above ``limit``; None where it is not known."""
    return None if value is None else value > limit
