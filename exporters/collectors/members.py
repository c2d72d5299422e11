"""Members: the workers and API servers around each engine core."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from engine_hooks.own_memory import OwnMemoryRow
from exporters import catalogue as c
from exporters.collectors.base import Sample, known


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield who is there and who should be, and the KV cache of each worker."""
    yield Sample(c.MEMBERS_UNJOINED, (), state.unjoined_members)
    for engine in state.engines:
        yield from known(c.MEMBERS_EXPECTED, (engine.engine, "worker"), engine.workers_expected)
        yield from known(c.MEMBERS_EXPECTED, (engine.engine, "frontend"), engine.frontends_expected)
        for member in engine.members:
            labels = (engine.engine, member.role, str(member.rank))
            yield Sample(c.MEMBER_UP, labels, member.up)
            if member.worker is not None:
                yield from known(c.MEMBER_KV_BYTES, labels, member.worker.kv_bytes)


def collect_detail(state: AgentState) -> Iterator[Sample]:
    """Yield each process's memory, a worker's parameters and the requests of an API server."""
    for engine in state.engines:
        yield from _memory((engine.engine, "core", str(engine.rank)), engine.memory)
        for member in engine.members:
            labels = (engine.engine, member.role, str(member.rank))
            yield from known(c.MEMBER_RESIDENT_BYTES, labels, member.resident_bytes)
            yield from _cgroup(labels, member.memory)
            if member.worker is not None:
                yield from known(c.MEMBER_PARAMETER_BYTES, labels, member.worker.parameter_bytes)
            if member.frontend is not None:
                yield from known(c.MEMBER_REQUESTS, labels, member.frontend.requests)


def _memory(labels: tuple[str, str, str], memory: OwnMemoryRow | None) -> Iterator[Sample]:
    if memory is not None:
        yield from known(c.MEMBER_RESIDENT_BYTES, labels, memory.resident_bytes)
    yield from _cgroup(labels, memory)


def _cgroup(labels: tuple[str, str, str], memory: OwnMemoryRow | None) -> Iterator[Sample]:
    if memory is not None:
        yield from known(c.MEMBER_CGROUP_BYTES, labels, memory.cgroup_bytes)
        yield from known(c.MEMBER_CGROUP_LIMIT_BYTES, labels, memory.cgroup_limit_bytes)
