"""A GPU's waterfall as immutable values. Sizes are bytes."""

from __future__ import annotations

from typing import Literal

import msgspec

# In the order in which they are drawn.
PartName = Literal[
    "weights",
    "draft_model",
    "lora",
    "kv_held",
    "kv_cached_idle",
    "kv_empty",
    "kv_unsplit",
    "encoder_cache",
    "graphs",
    "torch_active",
    "torch_inactive",
    "context",
    "untold",
    "other_processes",
    "driver",
    "free",
]


class Part(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One part of a GPU's memory. ``owner``: the engine, ``torch/NAME`` for a PyTorch process, empty for the GPU's own.

    ``error_bytes``: how far from the truth it may be by what its source can tell; that readings are not of one moment
    comes on top while memory changes. ``count``: how many processes it is of.
    """

    part: PartName
    bytes: int
    error_bytes: int
    owner: str = ""
    count: int = 1


class Waterfall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One GPU, or one MIG instance: ``total_bytes`` = all parts + ``unattributed_bytes``.

    No part is below zero. ``unattributed_bytes`` is the remainder and never folded into a part; below zero the parts
    claim more than there is.
    ``error_bytes``: the parts' errors added up. ``total_bytes`` and the remainder are None where no sum is claimed;
    ``reasons`` say why, and what the remainder has in it for want of a source.
    """

    gpu: str
    uuid: str
    total_bytes: int | None
    parts: tuple[Part, ...]
    unattributed_bytes: int | None
    error_bytes: int
    reasons: tuple[str, ...] = ()
