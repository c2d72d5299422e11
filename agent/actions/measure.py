"""Names of numbers that an action is for, and where in the state they are. None: it can't be seen now."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.retained import leaks_of, past_lease
from agent.signals.types import AllocatorSignals, EngineSignals, TenantSignals
from agent.state import AgentState, EngineState
from agent.subject import Subject

AGED_SECONDS = 10.0  # a leaked block must have been so for so long: what was in flight then has long ended

Measure = Callable[[AgentState, Subject], float | None]


def engine_of(state: AgentState, subject: Subject) -> EngineState | None:
    """Return the engine that ``subject`` is, or is of."""
    return next((engine for engine in state.engines if engine.engine == subject.engine), None)


def signals_of(state: AgentState, engine: str) -> EngineSignals | None:
    """Return what an engine's numbers mean over time; its hooks' before its page's."""
    found = [each for each in (state.judgement.signals.engines if state.judgement else ()) if each.engine == engine]
    return max(found, key=lambda each: each.hooked, default=None)


def tenants_of(state: AgentState, engine: str) -> tuple[TenantSignals, ...]:
    """Return the signals of an engine's tenants."""
    return tuple(each for each in (state.judgement.signals.tenants if state.judgement else ()) if each.engine == engine)


def allocators_of(state: AgentState, subject: Subject) -> tuple[AllocatorSignals, ...]:
    """Return the allocators of a subject's engine, or of its one process or GPU."""
    found = state.judgement.signals.allocators if state.judgement else ()
    return tuple(
        each
        for each in found
        if each.engine == subject.engine
        and (not subject.gpu or each.gpu == subject.gpu)
        and (not subject.process or subject.process in (each.process, f"{each.role}/{each.rank}"))
    )


def measured(signal: str, state: AgentState, subject: Subject, since: float = 0.0) -> float | None:
    """Return the number called ``signal`` now; None where it can't be seen, or no such number is known.

    ``since``: seconds since the action that is for it. What leaks meanwhile is no fault of that action.
    """
    if signal == "orphaned_aged_blocks":
        engine = engine_of(state, subject)
        return None if engine is None else orphaned_aged(engine, since)
    measure = MEASURES.get(signal)
    return None if measure is None else measure(state, subject)


def orphaned_aged(engine: EngineState, since: float = 0.0) -> float | None:
    """Return the blocks of the main pool that had leaked :data:`AGED_SECONDS` or more before, ``since`` seconds ago.

    None where they are not named.
    """
    if engine.detail is None or engine.detail.leaks is None:
        return None
    old = AGED_SECONDS + since
    return sum(row.blocks for row in leaks_of(engine.detail, "orphaned") if row.age_seconds >= old)


def _use(state: AgentState, subject: Subject) -> float | None:
    engine = engine_of(state, subject)
    pool = engine.pool if engine else None
    return pool.held / pool.capacity if pool is not None and pool.capacity else None


def _waiting(state: AgentState, subject: Subject) -> float | None:
    engine = engine_of(state, subject)
    return engine.waiting if engine else None


def _refused(state: AgentState, subject: Subject) -> float | None:
    engine = engine_of(state, subject)
    row = engine.detail.allocation if engine and engine.detail else None
    return row.waiting_refused if row else None


def _late(state: AgentState, subject: Subject) -> float | None:
    engine = engine_of(state, subject)
    rows = engine.detail.delayed if engine and engine.detail else None
    if rows is None:
        return None
    return sum(row.blocks if row.lease_seconds is None else row.expired for row in rows if past_lease(row))


def _stuck(state: AgentState, subject: Subject) -> float | None:
    engine = engine_of(state, subject)
    row = engine.detail.speculation if engine and engine.detail else None
    return row.stuck if row else None


def _stalled(state: AgentState, subject: Subject) -> float | None:
    engine = engine_of(state, subject)
    row = engine.detail.waiting if engine and engine.detail else None
    return None if row is None else row.stalled_seconds or 0.0


def _silent(state: AgentState, subject: Subject) -> float | None:
    engine = engine_of(state, subject)
    row = engine.detail.waiting if engine and engine.detail else None
    return row.silent if row else None


def _tenant_share(state: AgentState, subject: Subject) -> float | None:
    own = (each for each in tenants_of(state, subject.engine) if each.tenant == subject.tenant)
    return next((each.share_ratio for each in own), None)


def _tenant_requests(state: AgentState, subject: Subject) -> float | None:
    engine = engine_of(state, subject)
    rows = engine.detail.tenants if engine is not None and engine.detail is not None else None
    own = next((each for each in rows or () if each.tenant == subject.tenant), None)
    return None if own is None else own.running + own.waiting


def _released(state: AgentState, subject: Subject) -> float | None:
    engine = engine_of(state, subject)
    row = engine.detail.compaction if engine and engine.detail else None
    return None if row is None else row.released_bytes or 0


def _slack(state: AgentState, subject: Subject) -> float | None:
    known = [each.slack_bytes for each in allocators_of(state, subject) if each.slack_bytes is not None]
    return max(known, default=None)


def _signal(name: str) -> Measure:
    def measure(state: AgentState, subject: Subject) -> float | None:
        found = signals_of(state, subject.engine)
        value: float | None = getattr(found, name) if found is not None else None
        return value

    return measure


MEASURES: Mapping[str, Measure] = {
    "use_ratio": _use,
    "waiting_requests": _waiting,
    "refused_requests": _refused,
    "late_blocks": _late,
    "stuck_requests": _stuck,
    "silent_requests": _silent,
    "stalled_seconds": _stalled,
    "tenant_share_ratio": _tenant_share,
    "tenant_requests": _tenant_requests,
    "allocator_slack_bytes": _slack,
    "released_kv_bytes": _released,
    "preempted_per_minute": _signal("preempted_per_minute"),
    "refused_per_minute": _signal("refused_per_minute"),
    "rebuild_evicted_ratio": _signal("rebuild_evicted_ratio"),
    "prefix_hit_ratio": _signal("prefix_hit_ratio"),
}
