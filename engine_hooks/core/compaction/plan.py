"""What is to move where: pure choices on a pool as it stands between two steps.

Paged blocks are interchangeable, so the fewest copies are one for each block that is held above the line. Of the cached
blocks that nobody holds, as many must be lost as go offline, whichever way: the first of the free queue, as vLLM itself
would reuse them first. Where those lie below the line, later ones from above move into their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from engine_hooks.core.levers.free_queue import Queue
from engine_hooks.core.pins import Block

Place = tuple[list[Block], int]  # a table, and where in it

Pairs = list[tuple[Block, Block]]


class UnsoundError(Exception):
    """The pool is not as its tables say: nothing may be moved."""


@dataclass(slots=True)
class Found:
    """Blocks above the line: ``held`` must move, ``idle`` are cached and worth moving, ``spare`` just go offline.

    ``lost``: those of ``spare`` that hold a prefix. ``below``: where the next look begins, -1 when all were seen.
    """

    held: list[Block] = field(default_factory=list)
    idle: list[Block] = field(default_factory=list)
    spare: list[Block] = field(default_factory=list)
    lost: int = 0
    below: int = -1


def look_down(
    blocks: Sequence[Block],
    offline: bytearray,
    line: int,
    start: int,
    worth: Callable[[Sequence[Block]], Sequence[bool]],
    *,
    moves: int,
    looks: int,
) -> Found:
    """Look at blocks from ``start`` down to ``line``, at most ``looks`` of them, until ``moves`` are to be moved."""
    found = Found()
    cached: list[Block] = []
    number = offline.rfind(0, line, start + 1)
    while number >= 0 and looks and len(found.held) + len(cached) < moves:
        block = blocks[number]
        if block.ref_cnt:
            found.held.append(block)
        elif block.prev_free_block is None:
            raise UnsoundError(f"block {number} is neither held nor free")
        elif block.block_hash is None:
            found.spare.append(block)
        else:
            cached.append(block)
        number = offline.rfind(0, line, number)
        looks -= 1
    for block, kept in zip(cached, worth(cached) if cached else (), strict=True):
        (found.idle if kept else found.spare).append(block)
    found.lost = len(cached) - len(found.idle)
    found.below = number
    return found


def places(tables: Iterable[list[Block]], sources: Sequence[Block]) -> dict[int, list[Place]]:
    """Return where each of ``sources`` stands, by its id: shared ones in several tables.

    Raises :class:`UnsoundError` where a block has other references than those.
    """
    sought = frozenset(map(id, sources))
    found: dict[int, list[Place]] = {block.block_id: [] for block in sources}
    for table in tables:
        if not sought.isdisjoint(map(id, table)):
            for index, block in enumerate(table):
                if id(block) in sought:
                    found[block.block_id].append((table, index))
    for block in sources:
        if block.ref_cnt != len(found[block.block_id]):
            raise UnsoundError(
                f"block {block.block_id} has {block.ref_cnt} references, tables explain {len(found[block.block_id])}"
            )
    return found


def walk(queue: Queue, after: Block | None = None) -> Iterator[Block]:
    """Yield free blocks, the next to be reused first, from behind ``after``; it must not change meanwhile."""
    before = after if after is not None else queue.fake_free_list_head
    tail = queue.fake_free_list_tail
    block = before.next_free_block
    while block is not tail:
        if block is None or block.prev_free_block is not before or block.ref_cnt:
            raise UnsoundError("the free queue is broken")
        yield block
        before, block = block, block.next_free_block


def free_below(queue: Queue, line: int, most: int, unfit: Callable[[Block], bool]) -> list[Block]:
    """Return free blocks below the line to move into, those first that are reused first anyway."""
    found: list[Block] = []
    if most:
        for block in walk(queue):
            if block.block_id < line and not unfit(block):
                found.append(block)
                if len(found) == most:
                    break
    return found


def ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return rising numbers as ranges (first, one past the last)."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found
