"""What an engine needs of its KV pool, what keeps its hands off it, and who beside it is short of memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from agent.actions.measure import signals_of
from agent.policy.compaction import CompactionPolicy
from agent.signals.types import EngineSignals
from agent.state import AgentState, EngineState, PoolState, Verdict

# What says that a pool is too small as it is.
PRESSING = frozenset({"kv_pressure", "preemption_thrash", "eviction_storm", "kv_stall"})
# Who is short of a device's memory: more of it would help them.
DEVICE = frozenset({"over_budget", "device_growth", "oom", "allocator_growth"})
POOL = frozenset({"kv_pressure", "preemption_thrash"})  # helped only where their own pool waits for memory


def whole_of(engine: EngineState) -> int:
    """Blocks of an engine's pool with those that are offline; 0 where they are not known."""
    return (engine.pool.capacity if engine.pool is not None else 0) + offline_of(engine)


def offline_of(engine: EngineState) -> int:
    """Blocks that compaction has taken out of a pool."""
    row = engine.detail.compaction if engine.detail is not None else None
    return row.offline if row is not None else 0


def need_of(engine: EngineState, signals: EngineSignals, limits: CompactionPolicy) -> int | None:
    """Blocks that requests hold and will, by the forecast; None where the pool is not known."""
    if engine.pool is None or not engine.pool.capacity:
        return None
    return engine.pool.held_max + int(_growth(signals) * limits.forecast_seconds / 60.0 * engine.pool.capacity)


def cached_of(pool: PoolState, signals: EngineSignals, limits: CompactionPolicy) -> int:
    """Cached blocks that are worth keeping, all or none: where prompts hit them."""
    hits = signals.prefix_hit_ratio
    return (pool.cached_idle or 0) if hits is not None and hits >= limits.keep_hit_ratio else 0


def longest_of(pool: PoolState) -> int:
    """Blocks that one request may need; 0 where that is not known."""
    if not pool.longest_tokens or not pool.block_tokens:
        return 0
    return -(-pool.longest_tokens // pool.block_tokens)


def pressed(state: AgentState, engine: EngineState) -> str:
    """Why a pool is too small as it is; empty where nothing says so."""
    signals = signals_of(state, engine.engine)
    row = engine.detail.allocation if engine.detail is not None else None
    if row is not None and row.waiting_refused:
        return "a request waits that was refused memory"
    if signals is not None and signals.harm:
        return "work waited for memory, was preempted or refused in the last minute"
    return next((each.kind for each in _on(state, engine) if each.kind in PRESSING), "")


def disturbed(state: AgentState, engine: EngineState) -> str:
    """Why an engine is let alone: what presses it, anything else that is wrong with it, or that nobody knows."""
    signals = signals_of(state, engine.engine)
    if engine.phase != "live" or engine.pool is None or signals is None or not signals.settled:
        return "nothing is known yet"
    if signals.harm is None:
        return "nobody knows whether work waits for memory"
    return pressed(state, engine) or next((each.kind for each in _on(state, engine)), "")


def short_beside(state: AgentState, engine: EngineState) -> str:
    """Who is short of the memory of this engine's GPUs, in words; empty where nobody is."""
    gpus = _gpus(state, engine)
    for verdict in _standing(state):
        subject = verdict.subject
        if verdict.phase != "confirmed" or (subject.engine and subject.engine == engine.engine):
            continue
        if verdict.kind in DEVICE and subject.gpu in gpus:
            return f"{subject}: {verdict.kind}"
        other = next((each for each in state.engines if subject.engine and each.engine == subject.engine), None)
        if other is None or not gpus & _gpus(state, other):
            continue
        if verdict.kind in DEVICE or (verdict.kind in POOL and offline_of(other)):
            return f"{subject}: {verdict.kind}"
    return ""


def _growth(signals: EngineSignals) -> float:
    """Share of the pool a minute by which what is held surely grows; the teeth of a saw are no growth."""
    fast, slow = signals.growth, signals.slow
    quick = fast.per_minute if fast is not None and fast.low > 0 and not signals.in_teeth else 0.0
    return max(quick, slow.per_hour / 60.0 if slow is not None and slow.low > 0 else 0.0)


def _standing(state: AgentState) -> Iterator[Verdict]:
    for verdict in state.judgement.verdicts if state.judgement is not None else ():
        if verdict.phase != "resolved" and verdict.tier != "note" and not verdict.held and not verdict.ending:
            yield verdict


def _on(state: AgentState, engine: EngineState) -> Iterator[Verdict]:
    return (each for each in _standing(state) if each.subject.engine == engine.engine)


def _gpus(state: AgentState, engine: EngineState) -> frozenset[str]:
    uuids = {member.worker.device_uuid for member in engine.members if member.worker is not None} - {""}
    return frozenset(each.gpu for each in state.waterfalls if each.uuid in uuids)
