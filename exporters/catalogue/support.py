"""What an engine can tell beyond its counters."""

from __future__ import annotations

from exporters.catalogue.base import Metric

DETAIL_SUPPORTED = Metric(
    "kvtide_detail_supported",
    "gauge",
    "boolean",
    ("engine", "section"),
    "1 where an engine tells a section of its detail, else 0; why it does not is in the agent's state.",
    detail=True,
)
