"""Verdicts."""

from __future__ import annotations

from exporters.catalogue.base import Metric

VERDICT = Metric(
    "kvtide_verdict",
    "gauge",
    "boolean",
    ("scope", "engine", "tenant", "gpu", "process", "source", "kind", "phase", "tier"),
    "A verdict that stands, with its phase (suspect, confirmed, or resolved for a minute) and who has to know of it "
    "(note, warn, page); always 1. Absent while what it is about can't be seen. The most urgent 256.",
)
VERDICTS = Metric(
    "kvtide_verdicts", "gauge", "verdicts", ("phase", "tier"), "Verdicts that stand, those that can't be seen included."
)
