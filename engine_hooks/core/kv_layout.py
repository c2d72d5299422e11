"""What a KV block holds and how many bytes it takes: read from vLLM's own configuration, not from model shapes.

Three plans are met. One allocation per tensor, each shared by one layer of every group (``shared_by``); a packed one,
where all tensors lie in one allocation whose size each of them repeats (``block_stride`` above zero); and since the
``layers`` field exists always one allocation, over which the groups lie on top of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

_KINDS = (
    ("slidingwindowmla", "sliding_window_mla"),
    ("mla", "mla"),
    ("sinkfull", "sink_full_attention"),
    ("slidingwindow", "sliding_window"),
    ("chunkedlocal", "chunked_local_attention"),
    ("mamba", "mamba"),
    ("encoderonly", "encoder_only_attention"),
    ("crossattention", "cross_attention"),
    ("fullattention", "full_attention"),
)


def one_allocation(tensor: Any) -> bool:
    """Whether ``size`` of this ``KVCacheTensor`` is that of the allocation that it shares with the others."""
    return hasattr(tensor, "layers") or getattr(tensor, "block_stride", 0) > 0


def device_tensors(config: Any) -> list[Any]:
    """The ``KVCacheTensor`` entries whose memory is on the device."""
    tensors = getattr(config, "kv_cache_tensors", None) or ()
    return [tensor for tensor in tensors if not getattr(tensor, "host_resident", False)]


def allocated_bytes(config: Any) -> int:
    """Bytes that one rank allocates for its KV cache on the device by ``config`` (a ``KVCacheConfig``)."""
    tensors = device_tensors(config)
    if any(map(one_allocation, tensors)):
        return max(int(tensor.size) for tensor in tensors)
    return sum(int(tensor.size) for tensor in tensors)


def pool_block_bytes(config: Any) -> int | None:
    """Bytes of one block of the device's pool on one rank; None without a KV cache or a configuration.

    Groups share the pool: a block belongs to one of them at a time, and takes this much whichever it is.
    """
    blocks = int(getattr(config, "num_blocks", 0) or 0)
    size = allocated_bytes(config)
    return size // blocks if size and blocks else None


def group_block_bytes(config: Any, group: Any) -> int | None:
    """Bytes that the layers of ``group`` fill in one of its blocks on one rank, scales included; None if not known.

    At most :func:`pool_block_bytes`; the rest of the block is padding while this group has it.
    """
    spec = group.kv_cache_spec
    layers = list(group.layer_names)
    by_layer = getattr(spec, "kv_cache_specs", None)
    if by_layer:
        return sum(int(by_layer[name].page_size_bytes) for name in layers)
    # The scheduler's copy of the configuration keeps one layer's spec for the whole group, so it does not show whether
    # the layers' pages differ: the tensors do.
    page = int(spec.page_size_bytes)
    tensors = getattr(config, "kv_cache_tensors", None) or ()
    if not tensors:
        return page * len(layers)
    own = [tensor for tensor in tensors if not set(_layers(tensor)).isdisjoint(layers)]
    if all(hasattr(tensor, "layers") for tensor in own):
        return _by_strides(own, page)
    if any(map(one_allocation, own)):
        return _by_offsets(own, page)
    blocks = int(config.num_blocks)
    return sum(int(tensor.size) // blocks for tensor in own) if blocks else None


def _layers(tensor: Any) -> Sequence[str]:
    names: Sequence[str] = tensor.layers if hasattr(tensor, "layers") else tensor.shared_by
    return names


def _by_strides(tensors: Sequence[Any], page: int) -> int:
    """One tensor per kind of page. The smaller stride is the page: the larger one steps over other pages.

    Where layers are interleaved inside a page (heads outermost) it is less than the page; then there is one kind.
    """
    if len(tensors) == 1:
        (tensor,) = tensors
        return len(tensor.layers) * max(page, min(int(tensor.layer_stride), int(tensor.block_stride)))
    return sum(len(t.layers) * min(int(t.layer_stride), int(t.block_stride)) for t in tensors)


def _by_offsets(tensors: Sequence[Any], page: int) -> int | None:
    """One tensor per slot of a packed block: told only where the slots show that the group's pages are all alike."""
    offsets = sorted(int(tensor.offset) for tensor in tensors)
    alike = all(later - earlier == page for earlier, later in pairwise(offsets))
    return page * len(tensors) if alike else None


def kind_of(spec: Any) -> str:
    """The kind of attention that a ``KVCacheSpec`` serves; the class's name where it is one that we do not know."""
    for base in type(spec).__mro__:
        name = base.__name__.lower()
        for mark, kind in _KINDS:
            if mark in name:
                return kind
    return type(spec).__name__


def copies_over_tensor_parallel(spec: Any, tensor_parallel: int, decode_context_parallel: int) -> int:
    """How many tensor-parallel ranks keep the same bytes of a layer with ``spec``: 1 where its heads are divided.

    MLA's latent vector has no heads to divide. Divided over decode context parallelism, each rank has its own tokens.
    """
    if getattr(spec, "tp_replicated", False):
        return tensor_parallel
    mla = kind_of(spec) in ("mla", "sliding_window_mla")
    if getattr(spec, "dcp_sharded", mla) and decode_context_parallel > 1:
        return 1
    shards = getattr(spec, "max_tp_shards", None)
    if shards is not None:
        return max(1, tensor_parallel // int(shards))
    return tensor_parallel if mla else 1
