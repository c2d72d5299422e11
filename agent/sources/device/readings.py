"""What is read of a GPU: one line per field. Each function gets the binding and a handle, and may raise and hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from agent.sources.device import names
from agent.sources.device.nvml import ARGUMENT_VERSION, FUNCTION_NOT_FOUND, NOT_SUPPORTED, UnsupportedError, code_of
from agent.sources.device.processes import compute, graphics, mps
from agent.sources.device.slices import slices
from agent.sources.device.state import Bar1, EccErrors, GpuMemory, RemappedRows, RetiredPages, Utilisation

SLOW_SECONDS = 10.0
RARE_SECONDS = 60.0  # also how soon something is asked again that was not supported


class Reading(NamedTuple):
    """``every``: seconds from one to the next, 0 for each reading; ``instances``: MIG instances have it, too."""

    field: str
    read: Callable[[Any, Any], object]
    every: float = 0.0
    instances: bool = False


def memory(nvml: Any, handle: Any) -> GpuMemory:
    """Memory with the driver's own part apart, or without where this driver does not tell it."""
    reserved: int | None
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        reserved = found.reserved
    except nvml.NVMLError as error:
        if code_of(error) not in {FUNCTION_NOT_FOUND, ARGUMENT_VERSION, NOT_SUPPORTED}:
            raise
        found, reserved = nvml.nvmlDeviceGetMemoryInfo(handle), None
    if found.total == 0:
        raise UnsupportedError("the driver says that this GPU has 0 bytes of memory")
    if max(found.used, found.free, reserved or 0) > found.total:
        raise ValueError(f"impossible: {found.used} B used, {found.free} B free, {found.total} B in total")
    return GpuMemory(total=found.total, used=found.used, free=found.free, reserved=reserved)


def _utilisation(nvml: Any, handle: Any) -> Utilisation:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    if max(rates.gpu, rates.memory) > 100:
        raise ValueError(f"impossible: {rates.gpu} % and {rates.memory} %")
    return Utilisation(gpu=rates.gpu / 100, memory=rates.memory / 100)


def _throttle(nvml: Any, handle: Any) -> tuple[str, ...]:
    try:
        mask = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except nvml.NVMLError as error:  # the name before driver 535
        if code_of(error) != FUNCTION_NOT_FOUND:
            raise
        mask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return names.throttle_reasons(mask)


def _bar1(nvml: Any, handle: Any) -> Bar1:
    found = nvml.nvmlDeviceGetBAR1MemoryInfo(handle)
    return Bar1(total=found.bar1Total, used=found.bar1Used)


def _ecc(nvml: Any, handle: Any) -> EccErrors:
    corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    since_load, ever = nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC
    return EccErrors(
        corrected=nvml.nvmlDeviceGetTotalEccErrors(handle, corrected, since_load),
        uncorrected=nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, since_load),
        corrected_ever=nvml.nvmlDeviceGetTotalEccErrors(handle, corrected, ever),
        uncorrected_ever=nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, ever),
    )


def _remapped_rows(nvml: Any, handle: Any) -> RemappedRows:
    corrected, uncorrected, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return RemappedRows(corrected=corrected, uncorrected=uncorrected, pending=bool(pending), failed=bool(failed))


def _retired_pages(nvml: Any, handle: Any) -> RetiredPages:
    single = nvml.nvmlDeviceGetRetiredPages(handle, nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
    double = nvml.nvmlDeviceGetRetiredPages(handle, nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
    pending = nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)
    return RetiredPages(single_bit=len(single), double_bit=len(double), pending=bool(pending))


def _compute_mode(nvml: Any, handle: Any) -> str:
    return names.compute_mode(nvml.nvmlDeviceGetComputeMode(handle))


# Asked before the others, for it says which instances there are to ask.
MIG = Reading("mig", slices, SLOW_SECONDS)

READINGS = (
    Reading("memory", memory, instances=True),
    Reading("processes", compute, instances=True),
    Reading("graphics_processes", graphics),
    Reading("mps_processes", mps, instances=True),
    Reading("utilisation", _utilisation),
    Reading("throttle", _throttle),
    Reading("bar1", _bar1, SLOW_SECONDS),
    Reading("ecc", _ecc, SLOW_SECONDS),
    Reading("remapped_rows", _remapped_rows, SLOW_SECONDS),
    Reading("retired_pages", _retired_pages, RARE_SECONDS),
    Reading("compute_mode", _compute_mode, RARE_SECONDS),
)
