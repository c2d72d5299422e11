"""From torch's nested counters to a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_hooks.allocator import DeviceRow

_LARGEST = 2**60
# By field: where torch has it.
_PATHS: dict[str, tuple[str, ...]] = {
    "allocated_bytes": ("allocated_bytes", "all", "current"),
    "allocated_peak_bytes": ("allocated_bytes", "all", "peak"),
    "reserved_bytes": ("reserved_bytes", "all", "current"),
    "reserved_peak_bytes": ("reserved_bytes", "all", "peak"),
    "active_bytes": ("active_bytes", "all", "current"),
    "active_peak_bytes": ("active_bytes", "all", "peak"),
    "requested_bytes": ("requested_bytes", "all", "current"),
    "requested_peak_bytes": ("requested_bytes", "all", "peak"),
    "inactive_split_bytes": ("inactive_split_bytes", "all", "current"),
    "inactive_split_peak_bytes": ("inactive_split_bytes", "all", "peak"),
    "small_allocated_bytes": ("allocated_bytes", "small_pool", "current"),
    "small_reserved_bytes": ("reserved_bytes", "small_pool", "current"),
    "large_allocated_bytes": ("allocated_bytes", "large_pool", "current"),
    "large_reserved_bytes": ("reserved_bytes", "large_pool", "current"),
    "retries_total": ("num_alloc_retries",),
    "ooms_total": ("num_ooms",),
    "device_allocs_total": ("num_device_alloc",),
    "device_frees_total": ("num_device_free",),
}
# The asynchronous allocator keeps these two, asked of the driver; the rest of its counters stays 0 for ever.
_ASYNC_FIELDS = ("allocated_bytes", "allocated_peak_bytes", "reserved_bytes", "reserved_peak_bytes")
_PRIVATE = "reserved_bytes_by_private_pools"


def size_of(value: object) -> int | None:
    """Return ``value`` if it is a number that may be sent; torch's counters have been below zero."""
    return value if type(value) is int and 0 <= value < _LARGEST else None


def row_of(device: int, uuid: str, stats: Mapping[str, Any], *, native: bool) -> tuple[DeviceRow, int]:
    """Return the row of a device, and how many of the fields that we know this torch has."""
    paths = _PATHS if native else {field: _PATHS[field] for field in _ASYNC_FIELDS}
    values = {field: size_of(_at(stats, path)) for field, path in paths.items()}
    if not native and not any(values.values()):  # it keeps nothing at all: that is not a zero
        values = {}
    if native:
        values["private_reserved_bytes"] = _private(stats)
    return DeviceRow(device=device, uuid=uuid, **values), sum(value is not None for value in values.values())


def _at(stats: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = stats
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _private(stats: Mapping[str, Any]) -> int | None:
    """The sum over private pools; None where this torch does not keep it."""
    pools = stats.get(_PRIVATE)
    if not isinstance(pools, Mapping):
        return None
    return size_of(sum(size_of(_at(pool, ("all", "current"))) or 0 for pool in pools.values()))
