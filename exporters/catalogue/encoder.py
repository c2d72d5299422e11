"""The encoder cache of multi-modal models, in encoder tokens."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

ENCODER_CAPACITY = Metric(
    "kvtide_encoder_tokens_capacity",
    "gauge",
    "tokens",
    ENGINE,
    "Encoder tokens that the cache has room for.",
    detail=True,
)
ENCODER_HELD = Metric(
    "kvtide_encoder_tokens_held",
    "gauge",
    "tokens",
    ENGINE,
    "Encoder tokens that requests refer to, orphaned ones too.",
    detail=True,
)
ENCODER_FREEABLE = Metric(
    "kvtide_encoder_tokens_freeable",
    "gauge",
    "tokens",
    ENGINE,
    "Encoder tokens that nobody refers to, kept in case they are asked for again.",
    detail=True,
)
ENCODER_ORPHANED = Metric(
    "kvtide_encoder_tokens_orphaned",
    "gauge",
    "tokens",
    ENGINE,
    "Encoder tokens that only requests refer to which no longer exist: leaked.",
)
ENCODER_ENTRIES = Metric(
    "kvtide_encoder_entries", "gauge", "entries", ENGINE, "Entries of the encoder cache.", detail=True
)
ENCODER_ENTRIES_ORPHANED = Metric(
    "kvtide_encoder_entries_orphaned", "gauge", "entries", ENGINE, "Entries of the encoder cache that are leaked."
)
