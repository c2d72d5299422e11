"""What one worker holds: the KV cache's storages and the model's, read once, without a word to the device."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from engine_hooks.members import WorkerRow

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines


def introduce(worker: Any) -> WorkerRow:
    """Return the row of ``worker``, which has taken its device and holds nothing yet that could be measured."""
    device = getattr(worker, "device", None)
    tensor_rank, pipeline_rank = _ranks()
    return WorkerRow(
        tensor_parallel_rank=tensor_rank,
        pipeline_parallel_rank=pipeline_rank,
        device=str(device)[:64],
        device_uuid=_uuid(device),
    )


def measure(worker: Any, kv_cache_config: Any) -> WorkerRow:
    """Return the row of ``worker`` as its KV cache has just been allocated by ``kv_cache_config``."""
    device = getattr(worker, "device", None)
    caches = getattr(getattr(worker, "model_runner", None), "kv_caches", None)
    blocks = getattr(kv_cache_config, "num_blocks", None)
    return msgspec.structs.replace(
        introduce(worker),
        kv_bytes=None if caches is None else storage_bytes(tensors_in(caches)),
        kv_blocks=None if blocks is None else int(blocks),
        parameter_bytes=_parameter_bytes(worker, device),
    )


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors in nested lists, tuples and mappings: a layer's state may be several."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the storages that ``tensors`` lie on, each counted once."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def _parameter_bytes(worker: Any, device: Any) -> int | None:
    try:
        model = worker.get_model()
        weights = [*model.parameters(), *model.buffers()]
        return storage_bytes(tensor for tensor in weights if device is None or tensor.device.type == device.type)
    except Exception:
        logger.warning("kvtide: this worker's parameters can't be measured", exc_info=True)
        return None


def _ranks() -> tuple[int, int]:
    """This process's ranks in its tensor-parallel and its pipeline-parallel group."""
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    return get_tp_group().rank_in_group, get_pp_group().rank_in_group


def _uuid(device: Any) -> str:
    """The driver's name for a CUDA device; empty for others, and where this torch does not tell."""
    if getattr(device, "type", None) != "cuda":
        return ""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid else ""
