"""What one worker holds: the storages of its KV cache, its models and its LoRA slots, read once, without a word to the
device; and those of its encoder cache, which comes and goes.

Storages are told apart by their address: a draft model may share its embeddings with the model that it drafts for.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from engine_hooks.guard import Guard
from engine_hooks.members import WorkerRow

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines

_OFFLOADED = "_vllm_is_uva_offloaded"  # vLLM's mark on weights that are in host memory and look as if on the device
MPS_FOLDER = "/tmp/nvidia-mps"  # noqa: S108 - CUDA's own default; nothing is made there
_OF_MODULES = ("_parameters", "_buffers", "_modules")


def introduce(worker: Any) -> WorkerRow:
    """Return the row of ``worker``, which has taken its device and holds nothing yet that could be measured."""
    device = getattr(worker, "device", None)
    tensor_rank, pipeline_rank = _ranks()
    return WorkerRow(
        tensor_parallel_rank=tensor_rank,
        pipeline_parallel_rank=pipeline_rank,
        device=str(device)[:64],
        device_uuid=_uuid(device),
        mps=mps_pipe(os.environ) if getattr(device, "type", "") == "cuda" else None,
    )


def measure(worker: Any, kv_cache_config: Any) -> WorkerRow:
    """Return the row of ``worker`` as its KV cache has just been allocated by ``kv_cache_config``."""
    runner, device = getattr(worker, "model_runner", None), getattr(worker, "device", None)
    caches = getattr(runner, "kv_caches", None)
    blocks = getattr(kv_cache_config, "num_blocks", None)
    counted = Storages()  # what several of them share is the first one's
    return msgspec.structs.replace(
        introduce(worker),
        kv_bytes=None if caches is None else storage_bytes(tensors_in(caches)),
        kv_blocks=None if blocks is None else int(blocks),
        parameter_bytes=_told("parameters", lambda: counted.add(_weights(worker.get_model(), device))),
        draft_bytes=_told("draft model", lambda: counted.add(_weights(_draft_model(worker), device))),
        lora_bytes=_told("LoRA slots", lambda: counted.add(_lora_slots(worker.get_model(), device))),
    )


def follow(worker: Any, row: WorkerRow, guard: Guard) -> Callable[[], WorkerRow]:
    """Return what gives ``row`` with the encoder cache as it is now. It does not keep ``worker`` alive. ``guard``: of
    this process, which is told of.
    """
    runner, device = getattr(worker, "model_runner", None), getattr(worker, "device", None)
    if runner is None:
        return lambda: row
    found = weakref.ref(runner)
    del runner

    def now() -> WorkerRow:
        runner = found()
        if runner is None:
            return row
        return msgspec.structs.replace(row, encoder_cache_bytes=guard.run("encoder cache", _encoder, runner, device))

    return now


class Storages:
    """Counts the storages that tensors lie on, each once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def add(self, tensors: Iterable[Any]) -> int:
        """Return the bytes of the storages of ``tensors`` that were not counted before."""
        found = 0
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._seen:
                self._seen.add(storage.data_ptr())
                found += storage.nbytes()
        return found


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the storages that ``tensors`` lie on, each counted once."""
    return Storages().add(tensors)


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


def _told(what: str, count: Callable[[], int]) -> int | None:
    try:
        return count()
    except Exception:
        logger.warning("kvtide: this worker's %s can't be measured", what, exc_info=True)
        return None


def _on(device: Any, tensors: Iterable[Any]) -> Iterator[Any]:
    """Those of ``tensors`` that lie on the worker's device; not what only looks so, as offloaded weights do."""
    for tensor in tensors:
        if (device is None or tensor.device.type == device.type) and not getattr(tensor, _OFFLOADED, False):
            yield tensor


def _weights(model: Any, device: Any) -> Iterator[Any]:
    return iter(()) if model is None else _on(device, [*model.parameters(), *model.buffers()])


def _draft_model(worker: Any) -> Any:
    """The model that drafts tokens; None where there is none, or none that is a module."""
    ask = getattr(worker, "get_draft_model", None)
    if ask is not None:
        return ask()
    model = getattr(getattr(getattr(worker, "model_runner", None), "drafter", None), "model", None)
    return model if hasattr(model, "parameters") else None


def _lora_slots(model: Any, device: Any) -> Iterator[Any]:
    """What layers wrapped for LoRA keep beside their weights: room for all adapters that may be active at once."""
    for module in model.modules():
        if hasattr(module, "set_lora"):
            own = {name: value for name, value in vars(module).items() if name not in _OF_MODULES}
            yield from _on(device, tensors_in(own))


def _encoder(runner: Any, device: Any) -> int | None:
    """Bytes of what a multi-modal model's encoder has put out and prompts still need; None for other models."""
    if not getattr(runner, "supports_mm_inputs", True):
        return None
    cache = getattr(runner, "encoder_cache", None)
    outputs = getattr(cache, "encoder_outputs", cache)  # the newer runner's is an object around the mapping
    if not isinstance(outputs, Mapping):
        return None
    # A copy in one go: the worker's thread goes on meanwhile.
    return storage_bytes(_on(device, tensors_in(list(outputs.values()))))


def _ranks() -> tuple[int, int]:
    """This process's ranks in its tensor-parallel and its pipeline-parallel group."""
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    return get_tp_group().rank_in_group, get_pp_group().rank_in_group


def mps_pipe(environ: Mapping[str, str]) -> bool:
    """Return whether an MPS server's pipe is where this process's CUDA looks for it."""
    return os.access(os.path.join(environ.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_FOLDER, "control"), os.F_OK)


def _uuid(device: Any) -> str:
    """The driver's name for a CUDA device; empty for others, and where this torch does not tell."""
    if getattr(device, "type", None) != "cuda":
        return ""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid else ""
