"""What the numbers of tenants, allocators, GPUs and the host mean over time."""

from __future__ import annotations

from collections.abc import Iterator

from agent.signals.types import AllocatorSignals, GpuSignals, HostSignals, TenantSignals
from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, known
from exporters.collectors.rows import once
from exporters.collectors.signals import MINUTE, forecast, rate, slow


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield the signals of all that is not an engine, as far as they are not :func:`collect_detail`'s."""
    if state.judgement is None:
        return
    signals = state.judgement.signals
    for tenant in once(signals.tenants, lambda each: (each.engine, each.tenant)):
        yield from _tenant(tenant)
    for allocator in once(signals.allocators, _allocator_labels):
        yield from _allocator(allocator)
    for gpu in once(signals.gpus, lambda each: each.gpu):
        yield from _gpu(gpu)
    for host in once(signals.host, _host_labels):
        yield from _host(host)


def collect_detail(state: AgentState) -> Iterator[Sample]:
    """Yield how all that changes, and what tenants' numbers are against what is usual."""
    if state.judgement is None:
        return
    signals = state.judgement.signals
    for tenant in once(signals.tenants, lambda each: (each.engine, each.tenant)):
        yield from _tenant_detail(tenant)
    for allocator in once(signals.allocators, _allocator_labels):
        yield from _allocator_detail(allocator)
    for gpu in once(signals.gpus, lambda each: each.gpu):
        yield from rate(c.GPU_OTHER_GROWTH, (gpu.gpu,), gpu.other_growth)
        yield from slow(c.GPU_OTHER_SLOW, (gpu.gpu,), gpu.other_slow)
        yield from rate(c.GPU_FOREIGN_GROWTH, (gpu.gpu,), gpu.foreign_growth)
    for host in once(signals.host, _host_labels):
        yield from rate(c.HOST_GROWTH, _host_labels(host), host.growth)


def _tenant_detail(signals: TenantSignals) -> Iterator[Sample]:
    labels = (signals.engine, signals.tenant)
    yield from known(c.TENANT_GROWTH, labels, _a_second(signals.share_per_minute))
    yield from known(c.TENANT_SHARE_TIMES, labels, signals.share_times)
    yield from known(c.TENANT_REQUEST_RATE, labels, _a_second(signals.requests_per_minute))
    yield from known(c.TENANT_REQUEST_TIMES, labels, signals.requests_times)
    yield from known(c.TENANT_PREEMPTIONS, labels, _a_second(signals.preempted_per_minute))
    yield from known(c.TENANT_SESSION_TIMES, labels, signals.session_times)


def _tenant(signals: TenantSignals) -> Iterator[Sample]:
    labels = (signals.engine, signals.tenant)
    yield from known(c.TENANT_SHARE, labels, signals.share_ratio)
    yield from known(c.TENANT_QUOTA_USE, labels, signals.quota_ratio)
    yield from known(c.TENANT_SESSION, labels, signals.session_median_seconds)


def _allocator_labels(signals: AllocatorSignals) -> tuple[str, ...]:
    own = bool(signals.process)  # of no engine: neither role nor rank says anything
    role, rank = ("", "") if own else (signals.role, str(signals.rank))
    return signals.engine, signals.process, role, rank, signals.gpu


def _allocator(signals: AllocatorSignals) -> Iterator[Sample]:
    yield from known(c.ALLOCATOR_USE, _allocator_labels(signals), signals.allocated_ratio)


def _allocator_detail(signals: AllocatorSignals) -> Iterator[Sample]:
    labels = _allocator_labels(signals)
    yield from known(c.ALLOCATOR_SLACK, labels, signals.slack_bytes)
    yield from rate(c.ALLOCATOR_GROWTH, labels, signals.growth)
    yield from slow(c.ALLOCATOR_SLOW, labels, signals.slow)
    yield from known(c.ALLOCATOR_RETRIES, labels, _a_second(signals.retries_per_minute))


def _gpu(signals: GpuSignals) -> Iterator[Sample]:
    labels = (signals.gpu,)
    yield from known(c.GPU_USE, labels, signals.use_ratio)
    yield from known(c.GPU_KV, labels, signals.kv_share_ratio)
    yield from rate(c.GPU_GROWTH, labels, signals.growth)
    yield from slow(c.GPU_SLOW, labels, signals.slow)
    yield from known(c.GPU_OTHER, labels, signals.other_bytes)
    yield from known(c.GPU_FOREIGN, labels, signals.foreign_bytes)


def _host_labels(signals: HostSignals) -> tuple[str, ...]:
    return signals.engine, signals.role, str(signals.rank), signals.what


def _host(signals: HostSignals) -> Iterator[Sample]:
    labels = _host_labels(signals)
    yield from slow(c.HOST_SLOW, labels, signals.slow)
    yield from known(c.HOST_LIMIT_USE, labels, signals.limit_ratio)
    yield from forecast(c.HOST_LIMIT_TIME, labels, signals.limit_seconds)


def _a_second(per_minute: float | None) -> float | None:
    return None if per_minute is None else per_minute / MINUTE
