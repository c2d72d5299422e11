"""Tokens computed and why, and how requests use their blocks."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

TOKENS_SCHEDULED = Metric(
    "kvtide_tokens_scheduled_total", "counter", "tokens", ENGINE, "Tokens that steps have computed, of whatever kind."
)
PREFILL_TOKENS = Metric(
    "kvtide_prefill_tokens_total",
    "counter",
    "tokens",
    ENGINE,
    "Those of them that were prefill, rebuilt ones included.",
    detail=True,
)
REBUILT_TOKENS = Metric(
    "kvtide_rebuilt_tokens_total",
    "counter",
    "tokens",
    ("engine", "cause"),
    "Prefill tokens computed again because their KV was lost, by cause: preempted or evicted. Absent where not shown.",
)
REBUILD_SECONDS = Metric(
    "kvtide_rebuild_seconds_total",
    "counter",
    "seconds",
    ENGINE,
    "The rebuilt tokens' share of the steps that computed them.",
)
REQUEST_LIFETIME = Metric(
    "kvtide_request_block_lifetime_seconds",
    "histogram",
    "seconds",
    ENGINE,
    "From a request's admission until its blocks were given back, by its end or by a preemption.",
    bounds=(0.1, 1.0, 10.0, 60.0, 600.0),
    detail=True,
)
PROMPT_TOKENS = Metric(
    "kvtide_request_prompt_tokens",
    "histogram",
    "tokens",
    ENGINE,
    "Lengths of prompts, each counted when its request was first admitted.",
    bounds=(2048.0, 8192.0, 32768.0, 131072.0),
)
TAIL_WASTE = Metric(
    "kvtide_tail_waste_slots", "gauge", "slots", ENGINE, "Token slots that are allocated and not filled.", detail=True
)
GROWTH_MAX = Metric(
    "kvtide_request_growth_max_blocks_per_second",
    "gauge",
    "blocks per second",
    ENGINE,
    "Most blocks per second that one long request has taken of late; which one is in the state. Absent without one.",
    detail=True,
)
