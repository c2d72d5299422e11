"""Blocks that stay although no running request needs them: leaks, delayed frees and pins, with who."""

from __future__ import annotations

from exporters.catalogue.base import Metric

_DELAYED = ("engine", "peer", "direction")
_PINNED = ("engine", "holder", "pool")

LEAKED = Metric(
    "kvtide_kv_leaked_blocks",
    "gauge",
    "blocks",
    ("engine", "kind", "tenant", "ending"),
    "Blocks that are orphaned or over-freed (kind), by the tenant that held them last and how its request ended.",
)

DELAYED_BLOCKS = Metric(
    "kvtide_kv_delayed_blocks",
    "gauge",
    "blocks",
    _DELAYED,
    "Blocks kept for a transfer or a step in flight, by peer and direction: send, receive, loading, deferred.",
)
DELAYED_REQUESTS = Metric(
    "kvtide_kv_delayed_requests",
    "gauge",
    "requests",
    _DELAYED,
    "Requests whose blocks those are: finished ones, or waiting ones where KV is loading.",
)
DELAYED_OLDEST = Metric(
    "kvtide_kv_delayed_oldest_seconds",
    "gauge",
    "seconds",
    _DELAYED,
    "How long the oldest of those has been kept.",
)
DELAYED_EXPIRED = Metric(
    "kvtide_kv_delayed_expired_blocks",
    "gauge",
    "blocks",
    _DELAYED,
    "Those blocks that have been kept for longer than their lease.",
)
DELAYED_LEASE = Metric(
    "kvtide_kv_delayed_lease_seconds",
    "gauge",
    "seconds",
    _DELAYED,
    "After what time the connector lets go by itself; absent where it never does.",
)

DELAYED_TENANT_BLOCKS = Metric(
    "kvtide_kv_delayed_tenant_blocks",
    "gauge",
    "blocks",
    ("engine", "tenant"),
    "The same blocks by tenant.",
    detail=True,
)
TRANSFER_INFO = Metric(
    "kvtide_engine_transfer_info",
    "gauge",
    "info",
    ("engine", "peer"),
    "What other engines call this one in their label peer; always 1, absent without a connector.",
    detail=True,
)

PINNED_REFERENCES = Metric(
    "kvtide_kv_pinned_references",
    "gauge",
    "references",
    _PINNED,
    "References on blocks that a connector or an offload job holds.",
)
PINNED_OLDEST = Metric(
    "kvtide_kv_pinned_oldest_seconds", "gauge", "seconds", _PINNED, "How long the oldest of those has been held."
)
PINNED_LIMIT = Metric(
    "kvtide_kv_pinned_limit_seconds",
    "gauge",
    "seconds",
    _PINNED,
    "At what age they count as orphaned; absent where the holder's own books explain them.",
)
