"""Which long request takes blocks fastest. Pure: it is told the tables' lengths about once a second."""

from __future__ import annotations

from collections.abc import Mapping

WINDOW_SECONDS = 10.0
MAX_REQUESTS = 1024


class SteepestGrowth:
    """Compares the lengths of block tables with those of ten to twenty seconds ago."""

    def __init__(self) -> None:
        self._old: tuple[float, dict[str, int]] | None = None
        self._new: tuple[float, dict[str, int]] | None = None

    def observe(self, now: float, blocks: Mapping[str, int]) -> tuple[str, float] | None:
        """Return the request that grew fastest and its blocks per second; None where none was there long enough.

        ``blocks``: table lengths of the requests that count now, at ``now`` seconds. A request that lost blocks and
        took others meanwhile counts as what it has more.
        """
        if self._new is None or now - self._new[0] >= WINDOW_SECONDS:
            followed = dict(sorted(blocks.items(), key=lambda item: -item[1])[:MAX_REQUESTS])
            self._old, self._new = self._new, (now, followed)
        if self._old is None:
            return None
        then, before = self._old
        grown = [(number - before[key], key) for key, number in blocks.items() if key in before]
        if not grown:
            return None
        most, key = max(grown)
        return key, max(0, most) / (now - then)
