"""Why requests wait, and whether anything moves."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

WAITING_BY_REASON = Metric(
    "kvtide_requests_waiting_by_reason", "gauge", "requests", ("engine", "reason"), "Requests that wait, by reason."
)
WAITING_UNSEEN = Metric(
    "kvtide_requests_waiting_unseen",
    "gauge",
    "requests",
    ENGINE,
    "Requests that wait and were too many to be looked at for their reasons.",
    detail=True,
)
IDLE_STEPS = Metric(
    "kvtide_idle_steps",
    "gauge",
    "steps",
    ENGINE,
    "Steps in a row that have scheduled no token although there are requests.",
    detail=True,
)
SILENT_REQUESTS = Metric(
    "kvtide_silent_requests",
    "gauge",
    "requests",
    ENGINE,
    "Requests that decode and have got no token for half a minute in which the engine has taken steps.",
    detail=True,
)
STALLED_SECONDS = Metric(
    "kvtide_stalled_seconds",
    "gauge",
    "seconds",
    ENGINE,
    "Since a token was last scheduled, while there is work; 0 while tokens flow, in a pause, and without work.",
)
STALLED_BY = Metric(
    "kvtide_stalled_by",
    "gauge",
    "boolean",
    ("engine", "reason"),
    "What stands in the way while no token is scheduled, a pause included; always 1, absent while tokens flow.",
)
