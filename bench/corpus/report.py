"""What a made-up engine reports: its pool, the details that the hooks send, its tenants."""

from __future__ import annotations

from collections import Counter

import msgspec

from agent.state import EngineState, HookState, PoolState
from bench.corpus.clock import Tick
from bench.corpus.engine import Engine
from bench.corpus.requests import BLOCK_TOKENS, Tenant
from engine_hooks.detail import AllocationRow, Detail, GroupRow, SpeculationRow, TenantRow, WaitingRow, WorkRow


def report(engine: Engine, tick: Tick, *, phase: str = "live", reason: str = "") -> EngineState:
    """Return what the agent knows of it."""
    engine.sequence += 1
    live = phase == "live"
    noise = engine.rng.randrange(0, 4)
    held = min(engine.capacity, engine.used + engine.kept)
    engine.cached = min(engine.cached, engine.capacity - held)
    orphaned = sum(row.blocks for row, _ in engine.orphans)
    pool = PoolState(
        capacity=engine.capacity,
        held=held,
        held_min=max(0, held - noise),
        held_max=min(engine.capacity, held + noise),
        cached_idle=engine.cached,
        empty=engine.capacity - held - engine.cached,
        orphaned=orphaned,
        over_freed=engine.over_freed,
        exact=True,
        audits=engine.sequence,
        ledger_drift=0,
        block_tokens=BLOCK_TOKENS,
        block_bytes=engine.block_bytes,
        delayed=sum(row.blocks for row in engine.delayed or ()),
        deferred=0,
        longest_tokens=engine.longest_tokens,
        pinned=sum(row.references for row in engine.pins or () if not row.known),
    )
    return EngineState(
        engine=engine.name,
        engine_id=f"id-{engine.name}",
        instance=engine.instance,
        host="node",
        pid=engine.pid,
        own_pid=engine.pid,
        index=0,
        rank=0,
        started_at=engine.started_at,
        engine_version="0.11.0",
        hooks_version="0.1.0",
        phase="live" if live else "silent" if phase == "silent" else "lost",
        reason=reason,
        link_up=phase != "lost",
        report_age_seconds=engine.rng.uniform(0.0, 1.0) if live else 12.0,
        report_sequence=engine.sequence if live else None,
        steps=engine.steps if live else None,
        running=len(engine.running) if live else None,
        waiting=len(engine.waiting) + engine.unfit if live else None,
        pool=pool if live else None,
        audit_supported=True,
        audit_reason="",
        hooks=HookState(
            errors={}, off={}, dropped_frames=0, hook_seconds=engine.steps * 5e-5, step_seconds=engine.steps * 0.03
        )
        if live
        else None,
        detail=_detail(engine, tick) if live else None,
        workers_expected=len([one for one in engine.members if one.role == "worker"]) or None,
        frontends_expected=1,
        members=engine.members,
    )


def _detail(engine: Engine, tick: Tick) -> Detail:
    leaks = tuple(msgspec.structs.replace(row, age_seconds=tick.t - lost) for row, lost in engine.orphans[:60])
    refused = [request for request in engine.waiting if request.refused]
    reasons = {"queued": len(engine.waiting) - len(refused), "memory": len(refused) + engine.unfit}
    if engine.stalled_by and not engine.unfit:
        reasons = {engine.stalled_by: len(engine.waiting)}
    if engine.paused:
        reasons = {"paused": len(engine.waiting)}
    return Detail(
        monotonic=tick.monotonic,
        groups=(
            GroupRow(
                group=0,
                kind="full_attention",
                pool="gpu",
                layers=32,
                block_tokens=BLOCK_TOKENS,
                block_bytes=engine.block_bytes,
                references=engine.used,
            ),
        ),
        leaks=leaks,
        delayed=engine.delayed,
        pins=engine.pins,
        tenants=_tenants(engine),
        allocation=AllocationRow(
            block_seconds=engine.takes.row(),
            wait_seconds=engine.waits.row(),
            blocks_taken_total=engine.taken,
            blocks_given_back_total=engine.given,
            refused_total=engine.refused,
            preempted_total=engine.preempted,
            consecutive_refusals=engine.consecutive,
            most_consecutive_refusals=engine.most_consecutive,
            most_retries=max((request.refused for request in refused), default=0),
            over_three_retries_total=engine.over_three,
            waiting_refused=len(refused),
            oldest_refused_seconds=max((request.waited for request in refused), default=None),
        ),
        work=WorkRow(
            scheduled_tokens_total=int(engine.scheduled),
            prefill_tokens_total=int(engine.prefilled + engine.rebuilt_preempted),
            rebuilt_preempted_total=int(engine.rebuilt_preempted),
            rebuilt_evicted_total=int(engine.rebuilt_evicted),
            rebuild_seconds_total=engine.rebuild_seconds,
            request_seconds=engine.lives.row(),
            prompt_tokens=engine.prompts.row(),
            tail_slots=len(engine.running) * BLOCK_TOKENS // 2,
            steepest_slope=3.5 if engine.running else None,
        ),
        speculation=_speculation(engine),
        waiting=WaitingRow(
            reasons={reason: number for reason, number in reasons.items() if number},
            idle_steps=int(engine.stalled * 20),
            stalled_seconds=engine.stalled if engine.stalled > 0 else None,
            stalled_by="paused" if engine.paused else engine.stalled_by if engine.stalled > 0 else "",
        ),
    )


def _speculation(engine: Engine) -> SpeculationRow | None:
    if not engine.speculative:
        return None
    return SpeculationRow(
        drafted_tokens_total=engine.rounds * 3,
        accepted_tokens_total=engine.rounds * 2,
        rounds_total=engine.rounds,
        interruptions_total=engine.interruptions,
        residue_blocks_total=engine.residue,
        states={"drafting": len(engine.running)},
        stuck=engine.stuck,
        stuck_after_seconds=30.0,
    )


def _tenants(engine: Engine) -> tuple[TenantRow, ...]:
    running, held, waiting = Counter[str](), Counter[str](), Counter[str]()
    for request in engine.running:
        running[request.tenant.name] += 1
        held[request.tenant.name] += request.blocks
    waiting.update(request.tenant.name for request in engine.waiting)
    return tuple(
        _tenant(engine, tenant, running[tenant.name], waiting[tenant.name], held[tenant.name])
        for tenant in engine.tenants
    )


def _tenant(engine: Engine, tenant: Tenant, running: int, waiting: int, held: int) -> TenantRow:
    sessions = engine.sessions[tenant.name].row()
    return TenantRow(
        tenant=tenant.name,
        running=running,
        waiting=waiting,
        held=float(held),
        references=held,
        requests_total=tenant.requests,
        prompt_tokens_total=tenant.prompt_tokens,
        generated_tokens_total=int(tenant.generated),
        preempted_total=tenant.preempted,
        ended_total=dict(tenant.ended),
        sessions=running * 2,
        session_lifetime_seconds=sessions,
        session_idle_seconds=sessions,
        quota_blocks=tenant.quota_blocks,
        held_age_seconds=0.5,
    )
