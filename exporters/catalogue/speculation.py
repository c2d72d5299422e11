"""Speculative drafts, and what interrupted ones leave behind."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

DRAFTED = Metric("kvtide_speculation_drafted_tokens_total", "counter", "tokens", ENGINE, "Tokens that were drafted.")
ACCEPTED = Metric(
    "kvtide_speculation_accepted_tokens_total", "counter", "tokens", ENGINE, "Drafted tokens that were accepted."
)
ROUNDS = Metric(
    "kvtide_speculation_rounds_total",
    "counter",
    "rounds",
    ENGINE,
    "Drafts of one request that were verified.",
    detail=True,
)
INTERRUPTIONS = Metric(
    "kvtide_speculation_interruptions_total",
    "counter",
    "interruptions",
    ENGINE,
    "Requests that were aborted or preempted with drafts that were not yet verified.",
    detail=True,
)
RESIDUE = Metric(
    "kvtide_speculation_residue_blocks_total",
    "counter",
    "blocks",
    ENGINE,
    "Blocks that interrupted requests did not give back when they were cleaned up.",
    detail=True,
)
SPECULATION_REQUESTS = Metric(
    "kvtide_speculation_requests", "gauge", "requests", ("engine", "state"), "Requests by drafting state.", detail=True
)
SPECULATION_STUCK = Metric(
    "kvtide_speculation_requests_stuck",
    "gauge",
    "requests",
    ENGINE,
    "Requests that draft without progress, or were aborted and not cleaned up.",
)
SPECULATION_STUCK_AFTER = Metric(
    "kvtide_speculation_stuck_after_seconds", "gauge", "seconds", ENGINE, "For how long that must be so.", detail=True
)
