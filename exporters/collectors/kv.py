"""KV blocks, in blocks and in bytes, and the state of their audit."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, known


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each engine's pool; nothing for an engine that is not live."""
    for engine in state.engines:
        label, pool = (engine.engine,), engine.pool
        if pool is None:
            continue
        yield Sample(c.KV_CAPACITY, label, pool.capacity)
        yield Sample(c.KV_HELD, label, pool.held)
        yield Sample(c.KV_HELD_MAX, label, pool.held_max)
        yield from known(c.KV_CACHED_IDLE, label, pool.cached_idle)
        yield from known(c.KV_EMPTY, label, pool.empty)
        yield from known(c.KV_ORPHANED, label, pool.orphaned)
        yield from known(c.KV_OVER_FREED, label, pool.over_freed)
        yield from known(c.KV_DELAYED, label, pool.delayed)
        yield from known(c.KV_DEFERRED, label, pool.deferred)
        yield from known(c.KV_PINNED, label, pool.pinned)
        yield from known(c.KV_BLOCK_BYTES, label, pool.block_bytes)
        yield from known(c.KV_CAPACITY_BYTES, label, pool.bytes_of(pool.capacity))
        yield from known(c.KV_HELD_BYTES, label, pool.bytes_of(pool.held))
        yield from known(c.KV_CACHED_IDLE_BYTES, label, pool.bytes_of(pool.cached_idle))
        yield from known(c.KV_EMPTY_BYTES, label, pool.bytes_of(pool.empty))
        yield from known(c.KV_ORPHANED_BYTES, label, pool.bytes_of(pool.orphaned))
        yield Sample(c.AUDIT_SUPPORTED, label, engine.audit_supported)
        if engine.audit_supported:
            yield Sample(c.AUDIT_EXACT, label, pool.exact)
            yield Sample(c.AUDITS, label, pool.audits)
            yield Sample(c.LEDGER_DRIFT, label, pool.ledger_drift)
