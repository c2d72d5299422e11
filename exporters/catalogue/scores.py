"""Health scores."""

from __future__ import annotations

from exporters.catalogue.base import Metric

HEALTH_SCORE = Metric(
    "kvtide_health_score",
    "gauge",
    "points",
    ("scope", "engine", "gpu", "form"),
    "Health from 0 to 100; below 60 warning, below 40 severe, below 20 emergency. scope: kv, device, host, or engine, "
    "the least of what concerns it. form: kvtide counts what can be reclaimed as free, textbook takes raw memory.",
)
