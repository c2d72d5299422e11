"""What was refused, by tenant and reason; and what was measured in prompts. Bounded: 64 tenants, the rest in ``other``.

The event loop's thread writes, the link's side thread reads copies.
"""

from __future__ import annotations

from engine_hooks.frontend.tenant_map import OTHER
from engine_hooks.members import MAX_FRONT_TENANTS, HygieneRow, RefusedRow
from engine_hooks.names import NO_TENANT

RECENT = 0.05  # weight of one prompt in the ratios


class RefusedCounts:
    """Counts since the process started."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        self.total = 0

    def note(self, tenant: str, reason: str) -> None:
        """Count one refusal."""
        row = self._counts.get(_bounded(tenant, self._counts))
        if row is None:
            row = self._counts[_bounded(tenant, self._counts)] = {}
        row[reason] = row.get(reason, 0) + 1
        self.total += 1

    def rows(self) -> tuple[RefusedRow, ...]:
        """Return the counts."""
        return tuple(RefusedRow(tenant=tenant, reasons=row.copy()) for tenant, row in self._counts.copy().items())


class HygieneCounts:
    """Ratios of recent prompts, the newest counting most."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, float, float]] = {}

    def note(self, tenant: str, invisible: float, repeated: float) -> None:
        """Take in one prompt that was looked at."""
        tenant = _bounded(tenant, self._rows)
        seen, old_invisible, old_repeated = self._rows.get(tenant, (0, 0.0, 0.0))
        weight = max(RECENT, 1.0 / (seen + 1))
        self._rows[tenant] = (
            seen + 1,
            old_invisible + weight * (invisible - old_invisible),
            old_repeated + weight * (repeated - old_repeated),
        )

    def rows(self) -> tuple[HygieneRow, ...]:
        """Return what was measured."""
        return tuple(
            HygieneRow(tenant=tenant, requests=seen, invisible_ratio=invisible, repeated_ratio=repeated)
            for tenant, (seen, invisible, repeated) in self._rows.copy().items()
        )


def _bounded(
    tenant: str, known: dict[str, object] | dict[str, dict[str, int]] | dict[str, tuple[int, float, float]]
) -> str:
    tenant = tenant or NO_TENANT
    return tenant if tenant in known or len(known) < MAX_FRONT_TENANTS else OTHER
