"""Verdicts."""

from __future__ import annotations

from exporters.catalogue.base import Metric

VERDICT = Metric(
    "kvtide_verdict",
    "gauge",
    "boolean",
    ("scope", "engine", "tenant", "gpu", "process", "source", "kind", "phase", "tier"),
    "A verdict that stands, with its phase (suspect, confirmed, or resolved for a minute) and who has to know of it "
    "(note, warn, page); always 1, also while what it is about can't be seen. The most urgent 256.",
)
VERDICT_HELD = Metric(
    "kvtide_verdict_held",
    "gauge",
    "boolean",
    ("scope", "engine", "tenant", "gpu", "process", "source", "kind"),
    "What a verdict is about can't be seen now, so that nobody knows whether it is still so: it stands as it was, for "
    "ten minutes at most; always 1.",
)
VERDICTS = Metric(
    "kvtide_verdicts", "gauge", "verdicts", ("phase", "tier"), "Verdicts that stand, those that can't be seen included."
)
