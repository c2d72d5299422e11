"""A snapshot as values: segments and blocks, call stacks interned, and what the traces say.

Sizes are bytes. Blocks and segments refer to call stacks by number: ``Stacks.frames_of``.
"""

from __future__ import annotations

import msgspec

ACTIVE, AWAITING, INACTIVE = 0, 1, 2
STATE_NAMES = ("active", "awaiting free", "inactive")
NO_STACK = 0

PoolId = tuple[int, int]
DEFAULT_POOL: PoolId = (0, 0)


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame of a call stack."""

    filename: str
    line: int
    name: str


class Block(msgspec.Struct, frozen=True, gc=False):
    """A piece of a segment. ``requested``: what was asked for, 0 where it is free."""

    address: int
    size: int
    requested: int
    state: int
    stack: int


class Segment(msgspec.Struct, frozen=True):
    """Memory that the driver gave at once. ``expandable``: None where the format doesn't say."""

    device: int
    address: int
    size: int
    stream: int
    small: bool
    pool: PoolId
    expandable: bool | None
    blocks: tuple[Block, ...]

    @property
    def free(self) -> int:
        """Bytes that are free for the allocator's next use."""
        return sum(block.size for block in self.blocks if block.state == INACTIVE)

    @property
    def empty(self) -> bool:
        """Whether nothing at all is in use: the allocator can give the segment back."""
        return all(block.state == INACTIVE for block in self.blocks)


class OpenSite(msgspec.Struct, frozen=True, kw_only=True):
    """A call site (a frame's number) whose allocations in the trace did not end.

    ``tenths``: in how many tenths of the trace such an allocation was made: 10 is a steady leak, 1 is one burst.
    """

    site: int
    count: int
    size: int
    allocations: int
    tenths: int


class BusySite(msgspec.Struct, frozen=True, kw_only=True):
    """A call site and how much it allocated in the trace, ended or not."""

    site: int
    count: int
    size: int


class OomEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation that failed. ``reserved`` and ``allocated`` as deltas to the end of the trace (bytes)."""

    size: int
    device_free: int
    stack: int
    entries_before_end: int
    reserved_after: int
    allocated_after: int


class TraceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one device's trace says. ``seconds``: the time that it spans; None where it carries no times."""

    device: int
    entries: int
    seconds: float | None
    actions: dict[str, int]
    open_sites: tuple[OpenSite, ...]
    busy_sites: tuple[BusySite, ...]
    awaiting_count: int
    awaiting_size: int
    ooms: tuple[OomEvent, ...]
    ooms_total: int


class Stacks(msgspec.Struct, frozen=True):
    """Call stacks by number, each the numbers of its frames, innermost first; number 0 is 'not recorded'.

    ``sites``: by stack, the number of the frame that stands for it: the innermost that is not torch's own.
    """

    frames: list[Frame]
    stacks: list[tuple[int, ...]]
    sites: list[int]

    def frames_of(self, stack: int) -> list[Frame]:
        """Return a stack's frames, innermost first."""
        return [self.frames[frame] for frame in self.stacks[stack]]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. ``notes``: what the format did not say, or what in the file does not agree with itself."""

    segments: tuple[Segment, ...]
    traces: tuple[TraceFacts, ...]
    stacks: Stacks
    settings: dict[str, str]
    notes: tuple[str, ...]
