"""The waterfall: where a GPU's memory is."""

from __future__ import annotations

from exporters.catalogue.base import Metric

_PART = ("gpu", "part", "engine")

WATERFALL_BYTES = Metric(
    "kvtide_waterfall_bytes",
    "gauge",
    "bytes",
    _PART,
    "A part of a GPU's memory: weights, draft_model, lora, kv_held, kv_cached_idle, kv_empty (or kv_unsplit), "
    "encoder_cache, graphs, torch_active, torch_inactive, context, untold, other_processes, driver, free, "
    "unattributed. The parts of a GPU sum to its memory; unattributed is what is left, below zero where the parts "
    "claim too much. engine: whose it is, torch/NAME for a PyTorch process, empty for the GPU's own.",
)
WATERFALL_ERROR_BYTES = Metric(
    "kvtide_waterfall_error_bytes",
    "gauge",
    "bytes",
    _PART,
    "How far a part may be from the truth; for unattributed, the errors of all parts together.",
    detail=True,
)
