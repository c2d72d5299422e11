"""Tenants and their sessions."""

from __future__ import annotations

from collections.abc import Iterator

from agent.bounded import summed
from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, details, known, sound
from exporters.collectors.rows import once


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each tenant's share and load."""
    for engine, detail in details(state):
        for row in once(detail.tenants, lambda row: row.tenant):
            labels = (engine, row.tenant)
            yield from known(c.TENANT_HELD, labels, row.held)
            yield from known(c.TENANT_QUOTA, labels, row.quota_blocks)
            yield Sample(c.TENANT_RUNNING, labels, row.running)
            yield Sample(c.TENANT_WAITING, labels, row.waiting)
            yield Sample(c.TENANT_REQUESTS, labels, row.requests_total)
            for ending, requests in sorted(row.ended_total.items()):
                yield Sample(c.TENANT_ENDED, (*labels, ending), requests)
            yield Sample(c.TENANT_TOKENS, (*labels, "prompt"), row.prompt_tokens_total)
            yield Sample(c.TENANT_TOKENS, (*labels, "generated"), row.generated_tokens_total)
            yield Sample(c.TENANT_PREEMPTED, labels, row.preempted_total)
            yield Sample(c.TENANT_SESSIONS, labels, row.sessions)


def collect_detail(state: AgentState) -> Iterator[Sample]:
    """Yield each tenant's sessions, those of all of an engine's tenants, and how its blocks were counted."""
    for engine, detail in details(state):
        rows = tuple(once(detail.tenants, lambda row: row.tenant))
        yield from sound(c.SESSION_LIFETIME, (engine,), summed(row.session_lifetime_seconds for row in rows))
        yield from sound(c.SESSION_IDLE, (engine,), summed(row.session_idle_seconds for row in rows))
        for row in rows:
            labels = (engine, row.tenant)
            yield from known(c.TENANT_HELD_AGE, labels, row.held_age_seconds)
            yield Sample(c.TENANT_REFERENCES, labels, row.references)
            yield from sound(c.TENANT_LIFETIME, labels, row.session_lifetime_seconds)
            yield from sound(c.TENANT_IDLE, labels, row.session_idle_seconds)
