"""The pure half of compaction, on blocks made up here: what is seen from above, where blocks stand, what is free."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_hooks.core.compaction.plan import UnsoundError, free_below, look_down, places, ranges_of


@dataclass(eq=False)
class Block:
    block_id: int
    ref_cnt: int = 0
    block_hash: bytes | None = None
    prev_free_block: Any = None
    next_free_block: Any = None


class Queue:
    def __init__(self, blocks: list[Block]) -> None:
        self.fake_free_list_head, self.fake_free_list_tail = Block(-1), Block(-1)
        chain = [self.fake_free_list_head, *blocks, self.fake_free_list_tail]
        for before, after in itertools.pairwise(chain):
            before.next_free_block, after.prev_free_block = after, before


def keep_all(blocks: Any) -> list[bool]:
    return [True] * len(blocks)


POOLS = st.lists(st.sampled_from(("held", "cached", "empty", "offline")), min_size=1, max_size=60)


@given(POOLS, st.integers(0, 59), st.integers(1, 8), st.integers(1, 9))
def test_looking_down_in_slices_sees_each_block_above_the_line_once(
    kinds: list[str], line: int, moves: int, looks: int
) -> None:
    line = min(line, len(kinds) - 1)
    blocks = [
        Block(number, int(kind == "held"), b"h" if kind == "cached" else None) for number, kind in enumerate(kinds)
    ]
    Queue([block for block, kind in zip(blocks, kinds, strict=True) if kind in ("cached", "empty")])
    offline = bytearray(kind == "offline" for kind in kinds)
    seen: dict[str, list[int]] = {"held": [], "cached": [], "empty": []}
    at = len(blocks) - 1
    while at >= 0:
        found = look_down(blocks, offline, line, at, keep_all, moves=moves, looks=looks)
        assert len(found.held) + len(found.idle) <= moves
        for name, part in (("held", found.held), ("cached", found.idle), ("empty", found.spare)):
            seen[name] += [block.block_id for block in part]
        at = found.below
    for name, numbers in seen.items():
        assert sorted(numbers) == [number for number in range(line, len(kinds)) if kinds[number] == name]


def test_what_nobody_wants_goes_with_the_free_ones_and_is_counted() -> None:
    blocks = [Block(number, 0, b"h") for number in range(4)]
    Queue(blocks)
    found = look_down(blocks, bytearray(4), 1, 3, lambda cached: [False] * len(cached), moves=9, looks=9)
    assert (len(found.idle), len(found.spare), found.lost) == (0, 3, 3)


def test_a_block_that_is_nowhere_stops_it() -> None:
    with pytest.raises(UnsoundError, match="neither held nor free"):
        look_down([Block(0), Block(1)], bytearray(2), 1, 1, keep_all, moves=1, looks=1)


def test_a_shared_block_stands_in_every_table_and_is_one_copy() -> None:
    shared, own = Block(7, 2), Block(8, 1)
    first, second = [shared, own], [shared, Block(1, 1)]
    found = places([first, second], [shared, own])
    assert found[7] == [(first, 0), (second, 0)]
    assert found[8] == [(first, 1)]
    for table, index in found[7]:
        assert table[index] is shared


@pytest.mark.parametrize("references", [0, 1, 3])
def test_a_reference_that_no_table_explains_stops_it(references: int) -> None:
    shared = Block(7, references)
    with pytest.raises(UnsoundError, match="block 7"):
        places([[shared], [shared]], [shared])


def test_free_blocks_below_the_line_come_in_the_order_of_reuse() -> None:
    blocks = [Block(number) for number in (9, 3, 1, 8, 2)]
    queue = Queue(blocks)
    assert [block.block_id for block in free_below(queue, 5, 2, lambda block: block.block_id == 3)] == [1, 2]
    assert free_below(queue, 5, 0, lambda _block: False) == []
    blocks[1].ref_cnt = 1
    with pytest.raises(UnsoundError, match="broken"):
        free_below(queue, 5, 2, lambda _block: False)


@given(st.sets(st.integers(0, 60)))
def test_ranges_are_the_numbers(numbers: set[int]) -> None:
    ranges = ranges_of(sorted(numbers))
    assert [number for first, end in ranges for number in range(first, end)] == sorted(numbers)
    assert all(end < first for (_, end), (first, _) in itertools.pairwise(ranges))
