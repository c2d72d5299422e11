"""One reading of an engine, whether it has hooks or only a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from agent.retained import past_lease
from agent.signals.types import Reading
from agent.sources.scrape.state import ScrapedEngine
from agent.state import AgentState, EngineState, PoolState
from engine_hooks.detail import DelayedRow, Detail, TenantRow

T = TypeVar("T")

FAILURES = ("error", "connector_failure")  # endings of requests that should have gone on


def readings_of(
    state: AgentState, failed: Callable[[str, Exception], None] | None = None
) -> Iterator[tuple[Reading, Detail | None]]:
    """Yield the readings of all engines that say something, those with hooks first, each with its detail.

    ``failed`` gets what can't be read, by engine; without it the first failure is raised.
    """
    for engine in state.engines:
        reading = _read(of_hooks, engine, engine.engine, failed)
        if reading is not None:
            yield reading, engine.detail
    for page in state.scrape.engines if state.scrape else ():
        reading = _read(of_page, page, page.engine, failed)
        if reading is not None:
            yield reading, None


def _read(
    read: Callable[[T], Reading | None], of: T, name: str, failed: Callable[[str, Exception], None] | None
) -> Reading | None:
    try:
        return read(of)
    except Exception as error:
        if failed is None:
            raise
        failed(name, error)
        return None


def of_hooks(engine: EngineState) -> Reading | None:
    """Return what an engine's hooks say; None unless it is live."""
    if engine.phase != "live":
        return None
    pool, detail = engine.pool, engine.detail
    if pool is None:
        return Reading(
            engine=engine.engine,
            instance=engine.instance,
            hooked=True,
            started_at=engine.started_at,
            running=engine.running,
            waiting=engine.waiting,
            steps=engine.steps,
            repeated_ratio=_repeated(engine),
            **_told(detail),
        )
    apart = (pool.delayed or 0) + (pool.deferred or 0) + (pool.pinned or 0) + (pool.orphaned or 0)
    return Reading(
        engine=engine.engine,
        instance=engine.instance,
        hooked=True,
        started_at=engine.started_at,
        capacity=pool.capacity,
        held=pool.held,
        cached_idle=pool.cached_idle,
        explained=max(0, pool.held - apart) if pool.orphaned is not None else None,
        orphaned=pool.orphaned,
        over_freed=pool.over_freed,
        delayed=pool.delayed,
        deferred=pool.deferred,
        pinned=pool.pinned,
        unaccounted=_unaccounted(pool, detail),
        use_ratio=pool.held / pool.capacity if pool.capacity > 0 else None,
        block_tokens=pool.block_tokens,
        block_bytes=pool.block_bytes,
        cache_dtype=pool.cache_dtype,
        running=engine.running,
        waiting=engine.waiting,
        steps=engine.steps,
        repeated_ratio=_repeated(engine),
        **_told(detail),
    )


def of_page(engine: ScrapedEngine) -> Reading | None:
    """Return what an engine's own page says; None unless it could be read. A reset of its counters is a restart."""
    if engine.phase != "up":
        return None
    return Reading(
        engine=engine.engine,
        instance=f"{engine.url}#{engine.pid}#{engine.resets}",
        hooked=False,
        capacity=engine.capacity_blocks,
        held=engine.held_blocks,
        use_ratio=engine.usage_ratio,
        block_tokens=engine.block_tokens,
        cache_dtype=engine.cache_dtype,
        running=engine.running,
        waiting=engine.waiting,
        generated_total=engine.generation_tokens,
        prompt_total=engine.prompt_tokens,
        preempted_total=engine.preemptions,
        prefix_queries=engine.prefix_queries,
        prefix_hits=engine.prefix_hits,
    )


def _repeated(engine: EngineState) -> float | None:
    """Return the share of repeated text in prompts, each tenant by how many of its were looked at; None: none was."""
    rows = [row for each in engine.members if each.up and each.frontend for row in each.frontend.hygiene]
    looked = sum(row.requests for row in rows)
    return sum(row.requests * row.repeated_ratio for row in rows) / looked if looked else None


def _unaccounted(pool: PoolState, detail: Detail | None) -> int | None:
    """Return the held blocks that should not stay: orphaned ones, and those kept beyond their lease.

    A delayed free inside its lease levels off by itself, and what an unknown connector pins becomes orphaned by age.
    """
    if pool.orphaned is None:
        return None
    return pool.orphaned + sum(_overdue(row) for row in (detail.delayed or () if detail else ()))


def _overdue(row: DelayedRow) -> int:
    if not past_lease(row):
        return 0
    return row.blocks if row.lease_seconds is None else row.expired


def _told(detail: Detail | None) -> dict[str, Any]:
    if detail is None:
        return {}
    told: dict[str, Any] = {}
    if (row := detail.allocation) is not None:
        told |= {
            "preempted_total": row.preempted_total,
            "refused_total": row.refused_total,
            "waiting_refused": row.waiting_refused,
            "consecutive_refusals": row.consecutive_refusals,
            "taken_total": row.blocks_taken_total,
            "given_back_total": row.blocks_given_back_total,
        }
    if (work := detail.work) is not None:
        told["prefill_total"] = work.prefill_tokens_total
        told["scheduled_total"] = work.scheduled_tokens_total
        told["rebuilt_preempted_total"] = work.rebuilt_preempted_total
        told["rebuilt_evicted_total"] = work.rebuilt_evicted_total
        preempted, evicted = work.rebuilt_preempted_total, work.rebuilt_evicted_total
        if preempted is not None or evicted is not None:
            told["rebuilt_total"] = (preempted or 0) + (evicted or 0)
    if detail.tenants is not None:
        told |= _by_tenants(detail.tenants)
    return told


def _by_tenants(rows: tuple[TenantRow, ...]) -> dict[str, int]:
    generated = prompt = ended = failed = references = 0
    for row in rows:
        generated += row.generated_tokens_total
        prompt += row.prompt_tokens_total
        references += row.references
        endings = row.ended_total
        ended += sum(endings.values())
        for ending in FAILURES:
            failed += endings.get(ending, 0)
    return {
        "generated_total": generated,
        "prompt_total": prompt,
        "ended_total": ended,
        "failed_total": failed,
        "references": references,
    }
