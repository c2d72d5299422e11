"""The waterfall: where a GPU's memory is."""

from __future__ import annotations

from exporters.catalogue.base import Metric

_PART = ("gpu", "part", "engine")

WATERFALL_BYTES = Metric(
    "kvtide_waterfall_bytes",
    "gauge",
    "bytes",
    _PART,
    "A part of a GPU's memory: weights, kv_held, kv_cached_idle, kv_empty (or kv_unsplit), graphs, torch_active, "
    "torch_inactive, context, other_processes, driver, free, unattributed. The parts of a GPU sum to its memory. "
    "engine: whose it is, torch/NAME for a PyTorch process, empty for the GPU's own.",
)
WATERFALL_ERROR_BYTES = Metric(
    "kvtide_waterfall_error_bytes",
    "gauge",
    "bytes",
    _PART,
    "How far a part may be from the truth; for unattributed, the errors of all parts together.",
)
