"""An engine's detail from its metrics, as far as these have it."""

from __future__ import annotations

from collections.abc import Iterator

from agent.backtest.prometheus.moment import Moment
from engine_hooks.detail import (
    AllocationRow,
    DelayedRow,
    Detail,
    Histogram,
    LeakRow,
    PinRow,
    PoolRow,
    SpeculationRow,
    TenantRow,
    WaitingRow,
    WorkRow,
)

_NOTHING = Histogram(bounds=(), counts=(0,), sum=0.0)
_WHY = "the metrics do not have it"
_NOT_THERE = {"groups": _WHY, "encoder": _WHY, "tiers": _WHY}
_MAIN = "gpu"  # the pool of leaks: metrics do not tell in which they are, and those of others are counted there


def detail_of(engine: Moment, at: float) -> Detail:
    """Return what ``engine``'s series say at ``at``. A section is None where there is nothing of it."""
    return Detail(
        monotonic=at,
        transfer_id=next((row.labels.get("peer", "") for row in engine.rows("kvtide_engine_transfer_info")), ""),
        pools=tuple(_pools(engine)) or None,
        leaks=tuple(_leaks(engine)) or None,
        delayed=tuple(_delayed(engine)) or None,
        pins=tuple(_pins(engine)) or None,
        tenants=tuple(_tenants(engine)) or None,
        allocation=_allocation(engine),
        work=_work(engine),
        speculation=_speculation(engine),
        waiting=_waiting(engine),
        unsupported=_NOT_THERE,
    )


def _pools(engine: Moment) -> Iterator[PoolRow]:
    for pool, capacity in engine.by("pool", "kvtide_pool_blocks_capacity").items():
        yield PoolRow(
            pool=pool,
            capacity=capacity,
            held=engine.count("kvtide_pool_blocks_held", pool=pool) or 0,
            orphaned=engine.count("kvtide_pool_blocks_orphaned", pool=pool),
            over_freed=engine.count("kvtide_pool_blocks_over_freed", pool=pool),
        )


def _leaks(engine: Moment) -> Iterator[LeakRow]:
    for row in engine.rows("kvtide_kv_leaked_blocks"):
        if row.value > 0:
            yield LeakRow(
                kind=row.labels.get("kind", ""),
                pool=_MAIN,
                tenant=row.labels.get("tenant", ""),
                session="",
                request="",
                ending=row.labels.get("ending", ""),
                blocks=int(row.value),
                references=int(row.value),
                age_seconds=0.0,
            )


def _delayed(engine: Moment) -> Iterator[DelayedRow]:
    for row in engine.rows("kvtide_kv_delayed_blocks"):
        labels = {name: row.labels.get(name, "") for name in ("peer", "direction")}
        yield DelayedRow(
            peer=labels["peer"],
            direction=labels["direction"],
            requests=engine.count("kvtide_kv_delayed_requests", **labels) or 0,
            blocks=max(0, int(row.value)),
            oldest_seconds=engine.number("kvtide_kv_delayed_oldest_seconds", **labels) or 0.0,
            lease_seconds=engine.number("kvtide_kv_delayed_lease_seconds", **labels),
            expired=engine.count("kvtide_kv_delayed_expired_blocks", **labels) or 0,
        )


def _pins(engine: Moment) -> Iterator[PinRow]:
    for row in engine.rows("kvtide_kv_pinned_references"):
        labels = {name: row.labels.get(name, "") for name in ("holder", "pool")}
        limit = engine.number("kvtide_kv_pinned_limit_seconds", **labels)
        yield PinRow(
            holder=labels["holder"],
            pool=labels["pool"],
            known=limit is None,
            references=max(0, int(row.value)),
            oldest_seconds=engine.number("kvtide_kv_pinned_oldest_seconds", **labels),
            orphaned_after_seconds=limit,
        )


def _tenants(engine: Moment) -> Iterator[TenantRow]:
    for tenant, requests in engine.by("tenant", "kvtide_tenant_requests_total").items():
        tokens = engine.by("kind", "kvtide_tenant_tokens_total", tenant=tenant)
        yield TenantRow(
            tenant=tenant,
            running=engine.count("kvtide_tenant_requests_running", tenant=tenant) or 0,
            waiting=engine.count("kvtide_tenant_requests_waiting", tenant=tenant) or 0,
            held=engine.number("kvtide_tenant_blocks_held", tenant=tenant),
            references=engine.count("kvtide_tenant_block_references", tenant=tenant) or 0,
            requests_total=requests,
            prompt_tokens_total=tokens.get("prompt", 0),
            generated_tokens_total=tokens.get("generated", 0),
            preempted_total=engine.count("kvtide_tenant_preempted_total", tenant=tenant) or 0,
            ended_total=engine.by("ending", "kvtide_tenant_requests_ended_total", tenant=tenant),
            sessions=engine.count("kvtide_tenant_sessions", tenant=tenant) or 0,
            session_lifetime_seconds=engine.histogram("kvtide_tenant_session_lifetime_seconds", tenant=tenant),
            session_idle_seconds=engine.histogram("kvtide_tenant_session_idle_seconds", tenant=tenant),
            quota_blocks=engine.count("kvtide_tenant_quota_blocks", tenant=tenant),
            held_age_seconds=engine.number("kvtide_tenant_blocks_held_age_seconds", tenant=tenant),
        )


def _allocation(engine: Moment) -> AllocationRow | None:
    taken, refused = engine.count("kvtide_blocks_taken_total"), engine.count("kvtide_allocation_refused_total")
    if taken is None or refused is None:
        return None
    return AllocationRow(
        block_seconds=engine.histogram("kvtide_block_allocation_seconds") or _NOTHING,
        wait_seconds=engine.histogram("kvtide_admission_wait_seconds") or _NOTHING,
        blocks_taken_total=taken,
        blocks_given_back_total=engine.count("kvtide_blocks_given_back_total") or 0,
        refused_total=refused,
        preempted_total=engine.count("kvtide_requests_preempted_total"),
        consecutive_refusals=engine.count("kvtide_allocation_refusals_consecutive") or 0,
        most_consecutive_refusals=engine.count("kvtide_allocation_refusals_consecutive_max") or 0,
        most_retries=engine.count("kvtide_allocation_retries_max") or 0,
        over_three_retries_total=engine.count("kvtide_allocation_retried_requests_total") or 0,
        waiting_refused=engine.count("kvtide_requests_waiting_refused") or 0,
        oldest_refused_seconds=engine.number("kvtide_requests_waiting_refused_oldest_seconds"),
    )


def _work(engine: Moment) -> WorkRow | None:
    scheduled = engine.count("kvtide_tokens_scheduled_total")
    if scheduled is None:
        return None
    return WorkRow(
        scheduled_tokens_total=scheduled,
        prefill_tokens_total=engine.count("kvtide_prefill_tokens_total") or 0,
        rebuilt_preempted_total=engine.count("kvtide_rebuilt_tokens_total", cause="preempted"),
        rebuilt_evicted_total=engine.count("kvtide_rebuilt_tokens_total", cause="evicted"),
        rebuild_seconds_total=engine.number("kvtide_rebuild_seconds_total") or 0.0,
        request_seconds=engine.histogram("kvtide_request_block_lifetime_seconds") or _NOTHING,
        tail_slots=engine.count("kvtide_tail_waste_slots"),
        steepest_slope=engine.number("kvtide_request_growth_max_blocks_per_second"),
        prompt_tokens=engine.histogram("kvtide_request_prompt_tokens"),
    )


def _speculation(engine: Moment) -> SpeculationRow | None:
    drafted = engine.count("kvtide_speculation_drafted_tokens_total")
    if drafted is None:
        return None
    return SpeculationRow(
        drafted_tokens_total=drafted,
        accepted_tokens_total=engine.count("kvtide_speculation_accepted_tokens_total") or 0,
        rounds_total=engine.count("kvtide_speculation_rounds_total") or 0,
        interruptions_total=engine.count("kvtide_speculation_interruptions_total") or 0,
        residue_blocks_total=engine.count("kvtide_speculation_residue_blocks_total") or 0,
        states=engine.by("state", "kvtide_speculation_requests"),
        stuck=engine.count("kvtide_speculation_requests_stuck") or 0,
        stuck_after_seconds=engine.number("kvtide_speculation_stuck_after_seconds") or 0.0,
    )


def _waiting(engine: Moment) -> WaitingRow | None:
    stalled = engine.number("kvtide_stalled_seconds")
    if stalled is None:
        return None
    return WaitingRow(
        reasons=engine.by("reason", "kvtide_requests_waiting_by_reason"),
        idle_steps=engine.count("kvtide_idle_steps") or 0,
        stalled_seconds=stalled or None,  # 0 is told while tokens flow, in a pause, and without work
        stalled_by=engine.text("kvtide_stalled_by", "reason"),
        unseen=engine.count("kvtide_requests_waiting_unseen") or 0,
    )
