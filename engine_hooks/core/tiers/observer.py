"""The tiers section: what the installed connectors keep beside the GPU, and which of their jobs don't end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

from engine_hooks.core.observers import Context, UnsupportedError
from engine_hooks.core.tiers.jobs import JobAges, Tier
from engine_hooks.core.tiers.offloading import OffloadingTiers
from engine_hooks.core.tiers.simple import SimpleTiers
from engine_hooks.detail import MAX_ROWS, TierRow
from engine_hooks.names import printable

STUCK_AFTER_SECONDS = 60.0
MAX_NESTED = 16  # connectors


class Tiers(Protocol):
    """One connector's tiers, read from its own books between two steps."""

    def tiers(self) -> list[Tier]:
        """Return them, always in the same order."""
        ...


READERS = (SimpleTiers, OffloadingTiers)


class TiersObserver:
    """Fills ``tiers``: a row per tier of each connector that can be read, also inside a MultiConnector."""

    HOOK = "tiers"
    SECTION = "tiers"

    def __init__(self, context: Context) -> None:
        connector = getattr(context.scheduler, "connector", None)
        if connector is None:
            raise UnsupportedError("no KV connector is set up")
        connectors = list(_nested(connector))[:MAX_NESTED]
        self._readers: list[Tiers] = [
            tiers for each in connectors for kind in READERS if (tiers := kind.of(each)) is not None
        ]
        if not self._readers:
            names = ", ".join(dict.fromkeys(type(each).__name__ for each in connectors))
            raise UnsupportedError(f"the scheduler's side of {names} shows no offload tier")
        self._ages: dict[str, JobAges] = {}

    def section(self, now: float) -> tuple[TierRow, ...]:
        """Return the rows; O(jobs), bounded."""
        names: Counter[str] = Counter()
        rows = []
        for tier in [tier for reader in self._readers for tier in reader.tiers()][:MAX_ROWS]:
            names[tier.name] += 1
            name = printable(tier.name if names[tier.name] == 1 else f"{tier.name} {names[tier.name]}")
            rows.append(self._row(name, tier, now))
        return tuple(rows)

    def _row(self, name: str, tier: Tier, now: float) -> TierRow:
        ages = self._ages.setdefault(name, JobAges()).look(tier, now)
        return TierRow(
            tier=name,
            capacity=tier.capacity,
            used=tier.used,
            cached=tier.cached,
            pending=tier.pending,
            abandoned=tier.abandoned,
            oldest_seconds=max(ages, default=None),
            stuck=sum(age > STUCK_AFTER_SECONDS for age in ages),
            stuck_after_seconds=STUCK_AFTER_SECONDS,
            unseen=max(0, tier.pending - len(ages)),
        )


def _nested(connector: Any) -> Iterator[Any]:
    children = getattr(connector, "_connectors", None)
    if children is None:
        yield connector
    for child in children or ():
        yield from _nested(child)
