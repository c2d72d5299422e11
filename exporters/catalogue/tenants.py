"""Each tenant's share. The engine's hooks bound their number: what does not fit is in ``other``."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

_TENANT = ("engine", "tenant")

TENANT_HELD = Metric(
    "kvtide_tenant_blocks_held",
    "gauge",
    "blocks",
    _TENANT,
    "KV blocks that a tenant's requests hold; a shared block is divided by its references.",
)
TENANT_HELD_AGE = Metric(
    "kvtide_tenant_blocks_held_age_seconds",
    "gauge",
    "seconds",
    _TENANT,
    "How long ago those blocks were counted.",
    detail=True,
)
TENANT_QUOTA = Metric(
    "kvtide_tenant_quota_blocks",
    "gauge",
    "blocks",
    _TENANT,
    "KV blocks that a tenant may hold; absent where it has no quota.",
)
TENANT_REFERENCES = Metric(
    "kvtide_tenant_block_references",
    "gauge",
    "references",
    _TENANT,
    "References that a tenant's requests hold.",
    detail=True,
)
TENANT_RUNNING = Metric("kvtide_tenant_requests_running", "gauge", "requests", _TENANT, "Requests that run.")
TENANT_WAITING = Metric("kvtide_tenant_requests_waiting", "gauge", "requests", _TENANT, "Requests that wait.")
TENANT_REQUESTS = Metric("kvtide_tenant_requests_total", "counter", "requests", _TENANT, "Requests that came.")
TENANT_ENDED = Metric(
    "kvtide_tenant_requests_ended_total",
    "counter",
    "requests",
    (*_TENANT, "ending"),
    "Requests that ended, by how; aborts count here wherever they came from.",
)
TENANT_TOKENS = Metric(
    "kvtide_tenant_tokens_total",
    "counter",
    "tokens",
    (*_TENANT, "kind"),
    "Tokens of a tenant's requests, by kind: prompt or generated.",
)
TENANT_PREEMPTED = Metric(
    "kvtide_tenant_preempted_total", "counter", "preemptions", _TENANT, "Times that a tenant's requests were preempted."
)
TENANT_SESSIONS = Metric(
    "kvtide_tenant_sessions", "gauge", "sessions", _TENANT, "Sessions that are alive, or idle for not too long."
)
TENANT_LIFETIME = Metric(
    "kvtide_tenant_session_lifetime_seconds",
    "histogram",
    "seconds",
    _TENANT,
    "From a session's first turn to the end of its last.",
    detail=True,
)
TENANT_IDLE = Metric(
    "kvtide_tenant_session_idle_seconds",
    "histogram",
    "seconds",
    _TENANT,
    "Between two turns of one session.",
    detail=True,
)
SESSION_LIFETIME = Metric(
    "kvtide_session_lifetime_seconds",
    "histogram",
    "seconds",
    ENGINE,
    "From a session's first turn to the end of its last; sessions of all tenants.",
    bounds=(60.0, 1800.0),
    detail=True,
)
SESSION_IDLE = Metric(
    "kvtide_session_idle_seconds",
    "histogram",
    "seconds",
    ENGINE,
    "Between two turns of one session; sessions of all tenants.",
    bounds=(10.0, 120.0),
    detail=True,
)
