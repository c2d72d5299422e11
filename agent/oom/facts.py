"""All that is known of one failed allocation, from its message and from what the observer read, as one value."""

from __future__ import annotations

from typing import NamedTuple

from agent.oom.message import OomMessage
from engine_hooks.allocator import MemoryEvent

_ROUNDED = 0.01  # messages have two decimals
_CONTEXT_BYTES = 2 * 2**30  # what a process may hold beside torch: its context, libraries' workspaces


class Foreign(NamedTuple):
    """What other ``processes`` hold of the device by the waterfall; ``size`` in bytes."""

    size: int
    processes: int


class OomFacts(NamedTuple):
    """Bytes; None: not known. ``others``: other processes on the device, ``other_count`` of them; ``hidden``: taken on
    the device by nobody that is named. ``shared_free``, ``largest_free``: free in torch's shared pools, and in one
    block there.
    """

    requested: int | None = None
    device: int | None = None
    total: int | None = None
    limit: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    unallocated: int | None = None
    private: int | None = None
    others: int | None = None
    other_count: int = 0
    hidden: int | None = None
    shared_free: int | None = None
    largest_free: int | None = None
    expandable: bool | None = None


def facts_of(message: OomMessage | None, event: MemoryEvent | None, foreign: Foreign | None = None) -> OomFacts:
    """Return what they say together. The observer's numbers are exact, so they come first.

    ``foreign``: used where the message names no process; it is of some seconds later.
    """
    said = message or OomMessage(source="torch")
    seen = event or MemoryEvent(sequence=0, kind="", at=0.0)
    limit = said.limit
    total = said.total
    if seen.limit_bytes is not None:
        # torch tells its observer one number: the device's size, or the part that this process may take.
        if total is None:
            total = seen.limit_bytes
        elif seen.limit_bytes < total * (1 - _ROUNDED):
            limit = seen.limit_bytes
    allocated = _known(seen.allocated_bytes, said.allocated)
    unallocated = said.unallocated
    reserved = _known(seen.reserved_bytes, said.reserved)
    if reserved is None and allocated is not None and unallocated is not None:
        reserved = allocated + unallocated
    if unallocated is None and allocated is not None and reserved is not None:
        unallocated = max(0, reserved - allocated)
    free = _known(seen.device_free_bytes, said.free)
    own, others = _split(said, reserved)
    # Without a list of processes nothing is known of them: that is not "there are none".
    listed = bool(said.processes) or said.own is not None
    named = Foreign(sum(others), len(others)) if listed else foreign
    return OomFacts(
        requested=_known(seen.requested_bytes, said.requested),
        device=_known(seen.device, said.device),
        total=total,
        limit=limit,
        free=free,
        allocated=allocated,
        reserved=reserved,
        unallocated=unallocated,
        private=_known(seen.private_reserved_bytes, said.private),
        others=None if named is None else named.size,
        other_count=0 if named is None else named.processes,
        hidden=_hidden(total, free, own, others if named is None or listed else [named.size], reserved),
        shared_free=seen.free_bytes,
        largest_free=seen.largest_free_bytes,
        expandable=seen.expandable_segments,
    )


def _known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _split(said: OomMessage, reserved: int | None) -> tuple[int | None, list[int]]:
    """This process's bytes by the driver, and those of the others.

    In a container torch does not know its own pid on the host and lists itself as any other: it is the one that holds
    what torch has reserved and little more.
    """
    sizes = [size for _, size in said.processes]
    if said.own is not None or reserved is None:
        return said.own, sizes
    margin = round((said.total or 0) * _ROUNDED)
    fitting = [size for size in sizes if reserved - margin <= size <= reserved + _CONTEXT_BYTES]
    if not fitting:
        return None, sizes
    own = min(fitting)
    sizes.remove(own)
    return own, sizes


def _hidden(
    total: int | None, free: int | None, own: int | None, foreign: list[int], reserved: int | None
) -> int | None:
    """What is taken and belongs to no process that is named, beyond a context's worth."""
    if total is None or free is None or (own is None and reserved is None):
        return None
    named = (own if own is not None else reserved or 0) + sum(foreign)
    return max(0, total - free - named - _CONTEXT_BYTES)
