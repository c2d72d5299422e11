"""Sources: what the agent reads by itself."""

from __future__ import annotations

from exporters.catalogue.base import Metric

_SOURCE = ("source",)

SOURCE_UP = Metric(
    "kvtide_source_up",
    "gauge",
    "boolean",
    _SOURCE,
    "1 while this source's last reading succeeded and is fresh; at 0 its series are absent, /api/v1/state says why.",
)
SOURCE_READ_SECONDS = Metric(
    "kvtide_source_read_seconds", "gauge", "seconds", _SOURCE, "How long the last finished reading of this source took."
)
SOURCE_READS_TOTAL = Metric(
    "kvtide_source_reads_total", "counter", "readings", _SOURCE, "Readings of this source that have ended."
)
SOURCE_FAILURES_TOTAL = Metric(
    "kvtide_source_failures_total",
    "counter",
    "readings",
    _SOURCE,
    "Readings of this source that failed or took longer than its timeout.",
)
