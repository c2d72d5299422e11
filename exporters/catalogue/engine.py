"""Engines: who is there, whether it reports, and its requests."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

ENGINE_INFO = Metric(
    "kvtide_engine_info",
    "gauge",
    "info",
    ("engine", "engine_id", "vllm_version", "hooks_version"),
    "One engine process that is connected, or was until a moment ago; always 1. A restart draws a new engine_id.",
)
ENGINE_START = Metric(
    "kvtide_engine_start_time_seconds", "gauge", "seconds", ENGINE, "When the engine core came up, in Unix time."
)
ENGINE_UP = Metric(
    "kvtide_engine_up",
    "gauge",
    "boolean",
    ENGINE,
    "1 while the engine's own thread reports; 0 when it is silent or its link is lost, and then it has no values but "
    "for how long.",
)
ENGINE_REPORT_AGE = Metric(
    "kvtide_engine_report_age_seconds",
    "gauge",
    "seconds",
    ENGINE,
    "Since the engine's own thread last reported: how long one that is silent is waited for. Absent before its first "
    "report.",
)
ENGINE_STEPS = Metric("kvtide_engine_steps_total", "counter", "steps", ENGINE, "Engine steps since it came up.")
REQUESTS_RUNNING = Metric("kvtide_requests_running", "gauge", "requests", ENGINE, "Requests that run.")
REQUESTS_WAITING = Metric(
    "kvtide_requests_waiting", "gauge", "requests", ENGINE, "Requests that wait, for whatever reason."
)
