"""The flight recorder and the judge."""

from __future__ import annotations

from exporters.catalogue.base import Metric

RECORDER_UP = Metric(
    "kvtide_recorder_up", "gauge", "boolean", (), "1 while judged states are kept on disk; absent where it is off."
)
RECORDER_STATES = Metric("kvtide_recorder_states_total", "counter", "states", (), "States that were kept.")
RECORDER_DROPPED = Metric(
    "kvtide_recorder_states_dropped_total", "counter", "states", (), "States that the disk did not take, or too slowly."
)
RECORDER_TORN = Metric(
    "kvtide_recorder_files_torn_total", "counter", "files", (), "Files of an earlier agent that a crash had cut off."
)
RECORDER_BYTES = Metric("kvtide_recorder_bytes", "gauge", "bytes", (), "Recordings and bundles on disk.")
RECORDER_MAX_BYTES = Metric("kvtide_recorder_max_bytes", "gauge", "bytes", (), "What they may take.")
RECORDER_BUNDLES = Metric("kvtide_recorder_bundles_total", "counter", "bundles", (), "Bundles of incidents written.")
JUDGE_ERRORS = Metric(
    "kvtide_judge_errors_total",
    "counter",
    "errors",
    ("judge",),
    "Failures of a detector, of the signals or of the scores: a fault of kvtide's own.",
)
