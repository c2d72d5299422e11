"""GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from agent.sharing import sharings
from agent.sources.device.names import OTHER, THROTTLE_REASONS
from agent.sources.device.state import FIELDS, FIELDS_OF_INSTANCES, GpuState
from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, known


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield what the driver says of each GPU and of each MIG instance."""
    if state.device is None:
        return
    if state.device.driver is not None:
        yield Sample(c.GPU_DRIVER_INFO, (state.device.driver, state.device.cuda_driver or ""), 1)
    for gpu in state.device.gpus:
        yield from _gpu(gpu)
        for instance in gpu.instances:
            yield from _gpu(instance)


def collect_detail(state: AgentState) -> Iterator[Sample]:
    """Yield who shares each GPU, what of it could be read, why its clocks are low, and the rest of what is said."""
    for each in sharings(state):
        yield from known(c.GPU_SHARED, (each.gpu, each.through), each.others)
    for whole in state.device.gpus if state.device else ():
        for gpu in (whole, *whole.instances):
            if gpu.lost:
                continue
            yield from _detail(gpu)
            for field in FIELDS if gpu.parent is None else FIELDS_OF_INSTANCES:
                if field not in gpu.unsupported:
                    yield Sample(c.GPU_FIELD_UP, (gpu.gpu, field), field not in gpu.unavailable)
            if gpu.throttle is not None:
                for reason in (*THROTTLE_REASONS, OTHER):
                    yield Sample(c.GPU_THROTTLED, (gpu.gpu, reason), reason in gpu.throttle)


def _gpu(gpu: GpuState) -> Iterator[Sample]:
    labels = (gpu.gpu,)
    yield Sample(c.GPU_INFO, (gpu.gpu, gpu.uuid or "", gpu.name or "", gpu.parent or ""), 1)
    yield Sample(c.GPU_UP, labels, gpu.up)
    for xid in gpu.xids or ():
        yield Sample(c.GPU_XID, (gpu.gpu, str(xid.code) if xid.code else OTHER), xid.count)
    if gpu.lost:
        return
    if gpu.memory:
        for kind in ("total", "used", "free", "reserved"):
            yield from known(c.GPU_MEMORY, (gpu.gpu, kind), getattr(gpu.memory, kind))
    if gpu.utilisation:
        yield Sample(c.GPU_UTILISATION, labels, gpu.utilisation.gpu)
    if gpu.ecc:
        yield Sample(c.GPU_ECC, (gpu.gpu, "corrected"), gpu.ecc.corrected)
        yield Sample(c.GPU_ECC, (gpu.gpu, "uncorrected"), gpu.ecc.uncorrected)


def _detail(gpu: GpuState) -> Iterator[Sample]:
    labels = (gpu.gpu,)
    if gpu.parent is None:
        yield Sample(c.GPU_UNIFIED, labels, gpu.unified)
    yield from known(c.GPU_PROCESSES, labels, gpu.processes.count if gpu.processes else None)
    yield from known(c.GPU_MIG, labels, gpu.mig)
    if gpu.bar1:
        yield Sample(c.GPU_BAR1_USED, labels, gpu.bar1.used)
        yield Sample(c.GPU_BAR1_SIZE, labels, gpu.bar1.total)
    if gpu.utilisation:
        yield Sample(c.GPU_MEMORY_UTILISATION, labels, gpu.utilisation.memory)
    if gpu.ecc:
        yield Sample(c.GPU_ECC_EVER, (gpu.gpu, "corrected"), gpu.ecc.corrected_ever)
        yield Sample(c.GPU_ECC_EVER, (gpu.gpu, "uncorrected"), gpu.ecc.uncorrected_ever)
    if gpu.remapped_rows:
        yield Sample(c.GPU_REMAPPED, (gpu.gpu, "corrected"), gpu.remapped_rows.corrected)
        yield Sample(c.GPU_REMAPPED, (gpu.gpu, "uncorrected"), gpu.remapped_rows.uncorrected)
        yield Sample(c.GPU_REMAP_PENDING, labels, gpu.remapped_rows.pending)
        yield Sample(c.GPU_REMAP_FAILED, labels, gpu.remapped_rows.failed)
    if gpu.retired_pages:
        yield Sample(c.GPU_RETIRED, (gpu.gpu, "single_bit"), gpu.retired_pages.single_bit)
        yield Sample(c.GPU_RETIRED, (gpu.gpu, "double_bit"), gpu.retired_pages.double_bit)
        yield Sample(c.GPU_RETIRE_PENDING, labels, gpu.retired_pages.pending)
