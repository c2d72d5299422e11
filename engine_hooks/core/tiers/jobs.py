"""Jobs of one offload tier: how many are under way, and since when."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import islice

MAX_JOBS = 1024  # of one tier; connectors list the oldest first


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier at a moment, in blocks of the main pool's size; None where it can't be told.

    ``jobs``: a key per job under way, the same while it lasts, and when it began (monotonic seconds) where the
    connector knows. ``pending``: how many those are. ``abandoned`` of them: see :class:`engine_hooks.detail.TierRow`.
    """

    name: str
    capacity: int | None
    used: int | None
    cached: int | None
    jobs: Iterable[tuple[Hashable, float | None]]
    pending: int
    abandoned: int = 0


class JobAges:
    """Since when each job of one tier has been under way: since it began, or was first seen."""

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}

    def look(self, tier: Tier, now: float) -> list[float]:
        """Return the ages (seconds) of the tier's jobs, of the oldest ``MAX_JOBS`` at most."""
        before = self._since
        self._since = {
            key: began if began is not None else before.get(key, now) for key, began in islice(tier.jobs, MAX_JOBS)
        }
        return [max(0.0, now - since) for since in self._since.values()]
