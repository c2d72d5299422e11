"""How long the driver's memory calls take, seen from outside."""

from __future__ import annotations

from exporters.catalogue.base import Metric

_CALL = ("engine", "call")

DRIVER_CALL_SECONDS = Metric(
    "kvtide_driver_call_seconds",
    "histogram",
    "seconds",
    _CALL,
    "How long one call of the engine's processes into the GPU driver's or runtime's memory functions took.",
    detail=True,
)
DRIVER_CALL_FAILURES = Metric(
    "kvtide_driver_call_failures_total",
    "counter",
    "calls",
    _CALL,
    "Calls that returned an error, such as out of memory.",
    detail=True,
)
