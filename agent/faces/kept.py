"""Blocks that stay although no running request needs them, as lines: leaks, delayed frees, pins, other pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent.faces.lines import BAD, SHOWN, Line
from agent.retained import DEFERRED, LOADING, NO_TENANT, count_of, kept_for, owner_of, past_lease, plateau
from agent.units import human_seconds
from engine_hooks.detail import DelayedRow, Detail, LeakRow, PinRow, PoolRow


def lines(detail: Detail, peers: Mapping[str, str]) -> Iterator[Line]:
    """Yield who keeps what; nothing where all is well. ``peers``: engines that are ours, by what others call them."""
    yield from _leaks("over-freed", [row for row in detail.leaks or () if row.kind == "over_freed"])
    yield from _leaks("leaked", [row for row in detail.leaks or () if row.kind != "over_freed"])
    delayed = sorted(detail.delayed or (), key=lambda row: (not past_lease(row), -row.blocks))
    yield from (_delayed(row, peers) for row in delayed[:SHOWN])
    if rest := delayed[SHOWN:]:
        yield Line("kept", f"{count_of(sum(row.blocks for row in rest), 'block')} for {len(rest)} more", "dim")
    pins = sorted((row for row in detail.pins or () if row.references), key=lambda row: (row.known, -row.references))
    yield from (_pin(row) for row in pins[:SHOWN])
    yield from (_pool(row) for row in (detail.pools or ())[:SHOWN])


def _leaks(label: str, rows: Sequence[LeakRow]) -> Iterator[Line]:
    rows = sorted(rows, key=lambda row: -row.blocks)
    for row in rows[:SHOWN]:
        yield Line(label, f"{count_of(row.blocks, 'block')}: {owner_of(row)}", BAD)
    if rest := rows[SHOWN:]:
        yield Line(label, f"{count_of(sum(row.blocks for row in rest), 'block')} by {len(rest)} more", BAD)


def _delayed(row: DelayedRow, peers: Mapping[str, str]) -> Line:
    text = f"{count_of(row.blocks, 'block')} of {count_of(row.requests, 'request')} for {kept_for(row, peers)}, oldest "
    text += human_seconds(row.oldest_seconds)
    if row.lease_seconds is None:
        text += "" if row.direction in {DEFERRED, LOADING} else ", no lease"
    elif row.expired:
        text += f", {row.expired:,} past the lease of {human_seconds(row.lease_seconds)}"
    else:
        text += f" of a lease of {human_seconds(row.lease_seconds)}"
    named = {tenant: blocks for tenant, blocks in row.tenants.items() if tenant != NO_TENANT}
    if named:
        text += f"; most of tenant {max(named, key=lambda tenant: named[tenant])}"
    level = plateau(row)
    if level is not None:
        text += f"; levels off near {level:,.0f}"
    return Line("kept", text, BAD if past_lease(row) else "")


def _pin(row: PinRow) -> Line:
    text = f"{count_of(row.references, 'reference')} by {row.holder}"
    if row.oldest_seconds is not None:
        text += f", oldest {human_seconds(row.oldest_seconds)}"
    if not row.known:
        text += "; can't be seen into"
        if row.orphaned_after_seconds is not None:
            text += f", leaked at {human_seconds(row.orphaned_after_seconds)}"
    return Line("pinned", text, "dim" if row.known else "")


def _pool(row: PoolRow) -> Line:
    text = f"{row.pool}: {row.held:,} of {row.capacity:,} blocks held"
    if row.orphaned:
        text += f", {row.orphaned:,} leaked"
    if row.over_freed:
        text += f", {row.over_freed:,} over-freed"
    if row.orphaned is None:
        text += f"; no exact accounting: {row.reason}" if row.reason else "; no exact accounting"
    return Line("pool", text, BAD if row.orphaned or row.over_freed else "")
