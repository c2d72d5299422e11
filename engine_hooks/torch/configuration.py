"""What torch's allocator was told: by its environment variables, or by its own word where a snapshot has it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine_hooks.allocator import MIB
from engine_hooks.names import shown
from engine_hooks.torch.stats import size_of

# Newer names first: they win.
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_MAX_TEXT = 400


class Configuration(NamedTuple):
    """None where it is torch's default and torch has not said what that is."""

    text: str
    expandable_segments: bool | None
    max_split_bytes: int | None
    garbage_collection_threshold: float | None


def configuration_of(env: Mapping[str, str], told: Mapping[str, Any]) -> Configuration:
    """Return the configuration by ``env`` and, before it, by ``told``: ``allocator_settings`` of a snapshot."""
    text = next((env[name] for name in _VARIABLES if env.get(name)), "")
    said = _parse(text)
    expandable = told.get("expandable_segments")
    if expandable is None and "expandable_segments" in said:
        expandable = said["expandable_segments"].lower() == "true"
    split = size_of(told.get("max_split_size"))  # below zero, or the largest number there is: no limit
    if split is None and said.get("max_split_size_mb", "").isdecimal():
        split = int(said["max_split_size_mb"]) * MIB
    threshold = told.get("garbage_collection_threshold")
    if threshold is None:
        threshold = said.get("garbage_collection_threshold")
    return Configuration(
        text=shown(text[:_MAX_TEXT]),
        expandable_segments=None if expandable is None else bool(expandable),
        max_split_bytes=split,
        garbage_collection_threshold=_ratio(threshold),
    )


def _parse(text: str) -> dict[str, str]:
    """``a:b,c:d`` as a mapping; what is written otherwise is left to torch to complain of."""
    pairs = (part.partition(":") for part in text.split(","))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _ratio(value: Any) -> float | None:
    try:
        ratio = float(value)
    except (TypeError, ValueError):
        return None
    return ratio if 0.0 <= ratio <= 1.0 else None
