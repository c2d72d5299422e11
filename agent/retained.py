"""Blocks that stay although no running request needs them: whose they were, and whether they will ever come back.

Words and judgements that verdicts and faces share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from agent.units import human_seconds
from engine_hooks.detail import OTHER, DelayedRow, Detail, LeakRow

DEFERRED, LOADING = "deferred", "loading"
NO_TENANT, RUNNING, UNKNOWN = "none", "running", "unknown"
# A connector lets go at its own step after the lease, and ages are a second old when they arrive here.
LEASE_GRACE_SECONDS = 10.0
NO_LEASE_SECONDS = 600.0  # how old a delayed free without a lease may grow
# Before the oldest has used up this share of its lease, how much came in so far says little about the rate.
PLATEAU_AFTER = 0.1

_ENDINGS = {
    "aborted_front_end": "aborted at the front end",
    "stop_or_abort": "stopped or aborted at the front end",
    "aborted_engine": "aborted in the engine",
    "connector_failure": "failed in the connector",
    "error": "failed",
    "unknown": "its end was not seen, found",
}


def count_of(number: float, noun: str) -> str:
    """Return ``1 block`` or ``1,234 blocks``."""
    return f"{number:,.0f} {noun}" if round(number) == 1 else f"{number:,.0f} {noun}s"


def there_are(number: float, noun: str) -> str:
    """Return ``1 block is`` or ``1,234 blocks are``."""
    return f"{count_of(number, noun)} {'is' if round(number) == 1 else 'are'}"


def ending_of(ending: str) -> str:
    """Return how a request ended, in words."""
    return _ENDINGS.get(ending, ending.replace("_", " "))


def owner_of(row: LeakRow) -> str:
    """Return who held the blocks last, how that ended and when."""
    age = human_seconds(row.age_seconds)
    if row.tenant == OTHER and not row.request:
        return f"several requests, the first {age} ago"
    if not row.request:
        return f"no request that was seen; found {age} ago"
    tenant = "" if row.tenant == NO_TENANT else f"tenant {row.tenant}, "
    ending = "still running" if row.ending == RUNNING else f"{ending_of(row.ending)} {age} ago"
    return f"{tenant}request {row.request}, {ending}"


def leaks_of(detail: Detail | None, kind: str) -> list[LeakRow]:
    """Return the main pool's leaks of one kind, largest first."""
    if detail is None:
        return []
    beside = {row.pool for row in detail.pools or ()}
    rows = [row for row in detail.leaks or () if row.kind == kind and row.pool not in beside]
    return sorted(rows, key=lambda row: -row.blocks)


def beside(detail: Detail | None, kind: Literal["orphaned", "over_freed"]) -> list[tuple[str, int]]:
    """Return how many blocks are leaked in which pool beside the main one."""
    rows = [
        (row.pool, row.orphaned if kind == "orphaned" else row.over_freed) for row in (detail and detail.pools) or ()
    ]
    return [(pool, number) for pool, number in rows if number]


def blame(rows: Sequence[LeakRow]) -> str:
    """Return a sentence on who held leaked blocks last, led by a space; empty where nothing is known."""
    if not rows:
        return ""
    first, *others = rows
    if not others:
        return f" Last held by {owner_of(first)}."
    rest = count_of(sum(row.blocks for row in others), "block")
    return (
        f" {count_of(first.blocks, 'block')} of them last held by {owner_of(first)};"
        f" {rest} by {count_of(len(others), 'other')}."
    )


def past_lease(row: DelayedRow) -> bool:
    """Whether a delayed free has waited for longer than it may."""
    if row.lease_seconds is None:
        return row.blocks > 0 and row.oldest_seconds > NO_LEASE_SECONDS
    return row.expired > 0 and row.oldest_seconds > row.lease_seconds + LEASE_GRACE_SECONDS


def plateau(row: DelayedRow) -> float | None:
    """Return the blocks that delayed frees level off at if they go on as they do: rate of arrival times lease.

    None without a lease, before a tenth of it has passed, and past it.
    """
    lease = row.lease_seconds
    if lease is None or row.expired or not PLATEAU_AFTER * lease <= row.oldest_seconds <= lease:
        return None
    return row.blocks / row.oldest_seconds * lease if row.oldest_seconds > 0 else None


def peers_of(details: Iterable[tuple[str, Detail | None]]) -> dict[str, str]:
    """Return the labels of engines that are ours, by what other engines call them."""
    return {detail.transfer_id: label for label, detail in details if detail is not None and detail.transfer_id}


def kept_for(row: DelayedRow, peers: Mapping[str, str]) -> str:
    """Return for whom or for what blocks are kept; ``peers`` are engines that are ours."""
    if row.direction == DEFERRED:
        return "a step in flight"
    peer = "an unknown peer" if row.peer in {"", UNKNOWN} else row.peer
    peer = f"engine {peers[row.peer]}" if row.peer in peers else peer
    return f"KV to come from {peer}" if row.direction == LOADING else f"{peer} ({row.direction})"


def listed(parts: Iterable[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    *head, last = parts
    return f"{', '.join(head)} and {last}" if head else last
