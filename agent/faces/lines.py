"""One line of an engine's detail: what it is about, and what there is to say. Terminal and page share it: no rich."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.retained import NO_TENANT
from engine_hooks.detail import TenantRow

BAD = "#d55e00"
SHOWN = 4  # rows of one kind; the rest is summed up
TENANTS_SHOWN = 5


class Line(NamedTuple):
    """``label`` stands in a column of its own; ``style`` is rich's."""

    label: str
    text: str
    style: str = ""


def largest(tenants: Iterable[TenantRow] | None) -> tuple[list[TenantRow], list[TenantRow]]:
    """Return the tenants to show, largest first, and the others; none when no request belongs to a tenant."""
    rows = sorted(tenants or (), key=lambda row: (-(row.held or 0), -row.running, row.tenant))
    if all(row.tenant == NO_TENANT for row in rows):
        return [], []
    return rows[:TENANTS_SHOWN], rows[TENANTS_SHOWN:]


def share_of(row: TenantRow) -> str:
    """Return the blocks that a tenant holds, and of how many it may."""
    held = "not known" if row.held is None else f"{row.held:,.0f}"
    return held if row.quota_blocks is None else f"{held} of {row.quota_blocks:,}"
