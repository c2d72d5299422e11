"""What the numbers of tenants, allocators, GPUs and the host mean over time; see ``signals``."""

from __future__ import annotations

from exporters.catalogue.base import Metric
from exporters.catalogue.signals import TIMES

_TENANT = ("engine", "tenant")
_ALLOCATOR = ("engine", "process", "role", "rank", "gpu")
_GPU = ("gpu",)
_HOST = ("engine", "role", "rank", "what")
_ENDS = "bound: estimate, and the ends low and high of its 95% interval"


def _of(name: str, unit: str, labels: tuple[str, ...], text: str, *, detail: bool = False) -> Metric:
    return Metric(f"kvtide_{name}", "gauge", unit, labels, text, detail=detail)


def _rate(name: str, labels: tuple[str, ...], text: str, *, detail: bool = False) -> Metric:
    return _of(f"{name}_per_second", "ratio per second", (*labels, "bound"), f"{text}; {_ENDS}.", detail=detail)


TENANT_SHARE = _of("tenant_pool_ratio", "ratio", _TENANT, "A tenant's share of the pool, shared blocks divided.")
TENANT_GROWTH = _of(
    "tenant_pool_growth_per_second", "ratio per second", _TENANT, "Growth of a tenant's share.", detail=True
)
TENANT_SHARE_TIMES = _of(
    "tenant_pool_baseline_times", TIMES, _TENANT, "That share against what is usual for it.", detail=True
)
TENANT_QUOTA_USE = _of("tenant_quota_ratio", "ratio", _TENANT, "What a tenant holds, as a share of its quota.")
TENANT_REQUEST_RATE = _of(
    "tenant_requests_per_second", "requests per second", _TENANT, "A tenant's new requests.", detail=True
)
TENANT_REQUEST_TIMES = _of(
    "tenant_requests_baseline_times", TIMES, _TENANT, "That rate against what is usual for it.", detail=True
)
TENANT_PREEMPTIONS = _of(
    "tenant_preemptions_per_second",
    "preemptions per second",
    _TENANT,
    "A tenant's requests put back for memory.",
    detail=True,
)
TENANT_SESSION = _of("tenant_session_median_seconds", "seconds", _TENANT, "Median life of a tenant's sessions.")
TENANT_SESSION_TIMES = _of(
    "tenant_session_baseline_times", TIMES, _TENANT, "That life against what is usual for it.", detail=True
)

ALLOCATOR_USE = _of("allocator_allocated_ratio", "ratio", _ALLOCATOR, "Allocated by torch, as a share of the device.")
ALLOCATOR_SLACK = _of("allocator_slack_bytes", "bytes", _ALLOCATOR, "Reserved by torch and not allocated.", detail=True)
ALLOCATOR_GROWTH = _rate(
    "allocator_growth",
    _ALLOCATOR,
    "Growth of allocated bytes over the last minutes, as a share of the device",
    detail=True,
)
ALLOCATOR_SLOW = _rate(
    "allocator_slow_growth",
    _ALLOCATOR,
    "Growth of what stays of allocated bytes, over hours, as a share of the device",
    detail=True,
)
ALLOCATOR_RETRIES = _of(
    "allocator_retries_per_second",
    "retries per second",
    _ALLOCATOR,
    "Allocations that emptied torch's cache.",
    detail=True,
)

GPU_USE = _of("gpu_memory_use_ratio", "ratio", _GPU, "Used memory of a GPU.")
GPU_KV = _of("gpu_kv_ratio", "ratio", _GPU, "KV pools' share of a GPU's memory.")
GPU_GROWTH = _rate("gpu_memory_growth", _GPU, "Growth of used memory over the last minutes")
GPU_SLOW = _rate("gpu_memory_slow_growth", _GPU, "Growth of what stays of used memory, over hours")
GPU_OTHER = _of("gpu_other_bytes", "bytes", _GPU, "Memory that neither torch nor a KV pool accounts for.")
GPU_OTHER_GROWTH = _rate("gpu_other_growth", _GPU, "Growth of that memory over the last minutes", detail=True)
GPU_OTHER_SLOW = _rate("gpu_other_slow_growth", _GPU, "Growth of what stays of that memory, over hours", detail=True)
GPU_FOREIGN = _of("gpu_foreign_bytes", "bytes", _GPU, "Memory of processes that are no engine's.")
GPU_FOREIGN_GROWTH = _rate("gpu_foreign_growth", _GPU, "Growth of that memory over the last minutes", detail=True)

HOST_GROWTH = _rate(
    "engine_memory_growth", _HOST, "Growth of a process's or cgroup's memory, as a share of itself", detail=True
)
HOST_SLOW = _rate("engine_memory_slow_growth", _HOST, "Growth of what stays of it, over hours, as a share of itself")
HOST_LIMIT_USE = _of("engine_memory_limit_ratio", "ratio", _HOST, "What is used of the limit on it.")
HOST_LIMIT_TIME = _of(
    "engine_memory_limit_seconds",
    "seconds",
    (*_HOST, "bound"),
    f"Until that limit is reached, where growth is sure; {_ENDS}.",
)
