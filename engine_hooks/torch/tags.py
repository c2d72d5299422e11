"""vLLM's sleep-mode allocator (CuMem): what it holds by tag, where there is one. It is looked at, never made."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from engine_hooks.allocator import MAX_TAGS, TagRow
from engine_hooks.names import printable

_MODULE = "vllm.device_allocator.cumem"
_SIZE, _DEVICE = 1, 0  # places in a handle


def allocator() -> Any:
    """Return the sleep mode's allocator, or None where nobody has made one."""
    return getattr(getattr(sys.modules.get(_MODULE), "CuMemAllocator", None), "instance", None)


def tag_rows(found: Any) -> tuple[TagRow, ...]:
    """Return what ``found`` holds, by device and tag; the smallest tags beyond ``MAX_TAGS`` are left out."""
    groups: dict[tuple[int, str], list[Any]] = defaultdict(list)
    for data in list(found.pointer_to_data.values()):  # a copy: the engine's thread goes on meanwhile
        groups[int(data.handle[_DEVICE]), printable(str(data.tag))].append(data)
    rows = [_row(device, tag, group) for (device, tag), group in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.device, row.tag))[:MAX_TAGS])


def _row(device: int, tag: str, group: list[Any]) -> TagRow:
    told = all(hasattr(data, "is_asleep") for data in group)
    backed = [data for data in group if data.cpu_backup_tensor is not None]
    return TagRow(
        tag=tag,
        device=device,
        allocations=len(group),
        bytes=_bytes(group),
        # Older ones mark only what they have copied away, not what they threw away.
        mapped_bytes=_bytes([data for data in group if not data.is_asleep]) if told else None,
        backed_up_bytes=_bytes(backed),
    )


def _bytes(group: list[Any]) -> int:
    return sum(int(data.handle[_SIZE]) for data in group)


def pools_by_id(found: Any) -> dict[tuple[int, int], str]:
    """Return the tags of the pools that ``found`` allocates from, by torch's id of the pool."""
    names: dict[tuple[int, int], set[str]] = defaultdict(set)
    for tag, pools in list(getattr(found, "allocator_and_pools", {}).items()):
        for pool in _with_id(pools):
            names[tuple(pool.id)].add(str(tag))
    return {pool: printable(", ".join(sorted(tags))) for pool, tags in names.items()}


def _with_id(value: Any) -> Iterator[Any]:
    """The pools in nested lists and tuples: versions differ in how they keep them."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from _with_id(part)
    elif hasattr(value, "id"):
        yield value
