"""MIG: what a GPU is cut into."""

from __future__ import annotations

from typing import Any, NamedTuple

from agent.sources.device.nvml import NOT_FOUND, code_of


class Slice(NamedTuple):
    """A MIG device: a compute instance of a GPU instance. Those of one GPU instance share its memory."""

    gpu_instance: int
    compute_instance: int
    uuid: str
    name: str
    handle: Any


def slices(nvml: Any, handle: Any) -> tuple[Slice, ...] | None:
    """Return the MIG devices of a GPU, or None when it is not in that mode."""
    current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    if not current:
        return None
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError as error:
            if code_of(error) == NOT_FOUND:  # indexes may have holes
                continue
            raise
        found.append(
            Slice(
                nvml.nvmlDeviceGetGpuInstanceId(device),
                nvml.nvmlDeviceGetComputeInstanceId(device),
                nvml.nvmlDeviceGetUUID(device),
                nvml.nvmlDeviceGetName(device),
                device,
            )
        )
    return tuple(found)
