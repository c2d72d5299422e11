"""Members: the workers and API servers around each engine core."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, known


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each member's liveness and memory, and how many there should be."""
    yield Sample(c.MEMBERS_UNJOINED, (), state.unjoined_members)
    for engine in state.engines:
        yield from known(c.MEMBERS_EXPECTED, (engine.engine, "worker"), engine.workers_expected)
        yield from known(c.MEMBERS_EXPECTED, (engine.engine, "frontend"), engine.frontends_expected)
        for member in engine.members:
            labels = (engine.engine, member.role, str(member.rank))
            yield Sample(c.MEMBER_UP, labels, member.up)
            yield from known(c.MEMBER_RESIDENT_BYTES, labels, member.resident_bytes)
            if member.worker is not None:
                yield from known(c.MEMBER_KV_BYTES, labels, member.worker.kv_bytes)
                yield from known(c.MEMBER_PARAMETER_BYTES, labels, member.worker.parameter_bytes)
            if member.frontend is not None:
                yield from known(c.MEMBER_REQUESTS, labels, member.frontend.requests)
