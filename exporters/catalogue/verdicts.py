"""Verdicts."""

from __future__ import annotations

from exporters.catalogue.base import Metric

VERDICT = Metric(
    "kvtide_verdict",
    "gauge",
    "boolean",
    ("engine", "kind", "phase"),
    "A verdict that stands, with its phase (suspect, confirmed, or resolved for a minute); always 1.",
)
