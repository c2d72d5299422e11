"""What engines say, with no more names over time than a node can bear: see :mod:`agent.names`.

A tenant whose name is one too many is counted in ``other``, so that sums stay right; so is what is counted by an ending
or a reason. A pool, a group or a tier of such a name is left out. Each such name is counted by its kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from agent.names import EngineNames, Names
from engine_hooks.allocator import AllocatorRow
from engine_hooks.detail import OTHER, DelayedRow, Detail, Histogram, LeakRow, PinRow, TenantRow
from engine_hooks.members import MemberReport
from engine_hooks.wire import Report

Row = TypeVar("Row")


def bounded(detail: Detail, names: EngineNames, now: float) -> Detail:
    """Return ``detail`` as ``names`` let it be told; the same object where that is all of it."""
    word, words = names.word, names.words
    waiting, drafts, compaction = detail.waiting, detail.speculation, detail.compaction
    if waiting is not None:
        stalled, reasons = word(waiting.stalled_by, now), names.counted(waiting.reasons, now)
        if stalled != waiting.stalled_by or reasons is not waiting.reasons:
            waiting = replace(waiting, stalled_by=stalled, reasons=reasons)
    if drafts is not None and (states := names.counted(drafts.states, now)) is not drafts.states:
        drafts = replace(drafts, states=states)
    if compaction is not None and (state := word(compaction.state, now)) != compaction.state:
        compaction = replace(compaction, state=state)
    changes = {
        "tenants": _tenants(detail.tenants, names, now),
        "leaks": _each(detail.leaks, lambda row: _leak(row, names, now)),
        "delayed": _each(detail.delayed, lambda row: _delayed(row, names, now)),
        "pins": _each(detail.pins, lambda row: _pin(row, names, now)),
        "pools": _each(detail.pools, lambda row: row if words.admits(row.pool, now) else None),
        "groups": _each(detail.groups, lambda row: row if words.admits(f"{row.group} {row.kind}", now) else None),
        "tiers": _each(detail.tiers, lambda row: row if words.admits(row.tier, now) else None),
        "waiting": waiting,
        "speculation": drafts,
        "compaction": compaction,
        "transfer_id": _peer(detail.transfer_id, names, now, ""),
    }
    return detail if all(new is getattr(detail, name) for name, new in changes.items()) else replace(detail, **changes)


def bounded_report(report: Report, names: EngineNames, now: float) -> Report:
    """Return ``report`` with the hooks in it that ``names`` let be told."""
    errors = names.counted(report.hooks.errors, now)
    return report if errors is report.hooks.errors else replace(report, hooks=replace(report.hooks, errors=errors))


def bounded_member(report: MemberReport, names: EngineNames, now: float) -> MemberReport:
    """Return ``report`` with the hooks, devices and tags in it that ``names`` let be told."""
    row, errors = report.allocator, names.counted(report.errors, now)
    allocator = _allocator(row, names.words, now) if row is not None else None
    same = errors is report.errors and allocator is row
    return report if same else replace(report, errors=errors, allocator=allocator)


def _allocator(row: AllocatorRow, words: Names, now: float) -> AllocatorRow:
    backend = row.backend if words.admits(row.backend, now) else OTHER
    devices = _each(
        row.devices,
        lambda each: each if words.admits(f"cuda:{each.device}", now) and words.admits(each.uuid, now) else None,
    )
    tags = _each(
        row.tags,
        lambda each: each if words.admits(f"cuda:{each.device}", now) and words.admits(each.tag, now) else None,
    )
    walk = row.walk
    if walk is not None:
        found = _each(walk.devices, lambda each: each if words.admits(f"cuda:{each.device}", now) else None)
        walk = walk if found is walk.devices else replace(walk, devices=found)
    if backend == row.backend and devices is row.devices and tags is row.tags and walk is row.walk:
        return row
    return replace(row, backend=backend, devices=devices, tags=tags, walk=walk)


def _each(rows: tuple[Row, ...] | None, told: Callable[[Row], Row | None]) -> tuple[Row, ...] | None:
    """Return what ``told`` makes of each row, without those of which it makes nothing; ``rows`` where that is all."""
    if not rows:
        return rows
    found = tuple([new for row in rows if (new := told(row)) is not None])
    return rows if len(found) == len(rows) and all(map(_is, found, rows)) else found


def _is(new: object, old: object) -> bool:
    return new is old


def _peer(name: str, names: EngineNames, now: float, instead: str = OTHER) -> str:
    return name if name in ("", OTHER) or names.peers.admits(name, now) else instead


def _leak(row: LeakRow, names: EngineNames, now: float) -> LeakRow:
    told = (
        row.tenant if names.tenant(row.tenant, now) else OTHER,
        *(names.word(each, now) for each in (row.kind, row.pool, row.ending)),
    )
    if told == (row.tenant, row.kind, row.pool, row.ending):
        return row
    tenant, kind, pool, ending = told
    return replace(row, tenant=tenant, kind=kind, pool=pool, ending=ending)


def _delayed(row: DelayedRow, names: EngineNames, now: float) -> DelayedRow:
    peer, direction = _peer(row.peer, names, now), names.word(row.direction, now)
    tenants: Counter[str] = Counter()
    for tenant, blocks in row.tenants.items():
        tenants[tenant if names.tenant(tenant, now) else OTHER] += blocks
    if (peer, direction) == (row.peer, row.direction) and tenants.keys() == row.tenants.keys():
        return row
    return replace(row, peer=peer, direction=direction, tenants=dict(tenants))


def _pin(row: PinRow, names: EngineNames, now: float) -> PinRow:
    holder, pool = names.word(row.holder, now), names.word(row.pool, now)
    return row if (holder, pool) == (row.holder, row.pool) else replace(row, holder=holder, pool=pool)


def _tenants(rows: tuple[TenantRow, ...] | None, names: EngineNames, now: float) -> tuple[TenantRow, ...] | None:
    """Return the rows of tenants that have a name, and the sum of all others."""
    told = _each(rows, lambda row: _endings(row, names, now))
    if not told:
        return told
    named = [row for row in told if names.tenant(row.tenant, now, listed=row.quota_blocks is not None)]
    if len(named) == len(told):
        return told
    kept = {id(row) for row in named}
    others = [row for row in told if id(row) not in kept or row.tenant == OTHER]
    return (*(row for row in named if row.tenant != OTHER), _sum_of(others))


def _endings(row: TenantRow, names: EngineNames, now: float) -> TenantRow:
    ended = names.counted(row.ended_total, now)
    return row if ended is row.ended_total else replace(row, ended_total=ended)


def _sum_of(rows: list[TenantRow]) -> TenantRow:
    ended: Counter[str] = Counter()
    for row in rows:
        ended.update(row.ended_total)
    return TenantRow(
        tenant=OTHER,
        running=sum(row.running for row in rows),
        waiting=sum(row.waiting for row in rows),
        held=_of_known((row.held for row in rows), sum),
        references=sum(row.references for row in rows),
        requests_total=sum(row.requests_total for row in rows),
        prompt_tokens_total=sum(row.prompt_tokens_total for row in rows),
        generated_tokens_total=sum(row.generated_tokens_total for row in rows),
        preempted_total=sum(row.preempted_total for row in rows),
        ended_total=dict(ended),
        sessions=sum(row.sessions for row in rows),
        session_lifetime_seconds=summed(row.session_lifetime_seconds for row in rows),
        session_idle_seconds=summed(row.session_idle_seconds for row in rows),
        held_age_seconds=_of_known((row.held_age_seconds for row in rows), max),
    )


def _of_known(values: Iterable[float | None], of: Callable[[list[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return of(known) if known else None


def summed(found: Iterable[Histogram | None]) -> Histogram | None:
    """Return the sum of histograms, of those that have the same bounds as the first; None where there is none."""
    there = [each for each in found if each is not None]
    if not there:
        return None
    bounds, width = there[0].bounds, len(there[0].counts)
    same = [each for each in there if each.bounds == bounds and len(each.counts) == width]
    counts = tuple(map(sum, zip(*(each.counts for each in same), strict=True)))
    return Histogram(bounds=bounds, counts=counts, sum=sum(each.sum for each in same))
