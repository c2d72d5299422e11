"""What of a prefill had been computed before: chunks, marks, evicted hashes; and who grows fastest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_hooks.core.buckets import Buckets
from engine_hooks.core.growth import MAX_REQUESTS, WINDOW_SECONDS, SteepestGrowth
from engine_hooks.core.rebuild import Chunk, EvictedHashes, Prefill

BLOCK = 16


def hashes(tokens: int) -> list[bytes]:
    return [bytes([block]) for block in range(tokens // BLOCK)]


def evicted(*blocks: int) -> EvictedHashes:
    memory = EvictedHashes()
    for block in blocks:
        memory.add(hash(bytes([block])))
    return memory


def chunks(prefill: Prefill, target: int, start: int, sizes: list[int], memory: EvictedHashes) -> list[Chunk]:
    """The chunks of a prefill that begins at ``start`` and takes steps of these sizes."""
    found, computed = [], start
    for size in sizes:
        computed += size
        found.append(prefill.advance(computed, size, hashes(target), BLOCK, memory))
    assert prefill.done(computed)
    return found


def test_a_first_prefill_rebuilds_nothing() -> None:
    assert chunks(Prefill(100), 100, 0, [64, 36], evicted()) == [Chunk(64, 0, 0), Chunk(36, 0, 0)]


def test_padding_behind_the_known_tokens_is_no_prefill() -> None:
    # vLLM pads a single token to the width of a speculating request.
    assert chunks(Prefill(65), 65, 64, [5], evicted()) == [Chunk(1, 0, 0)]


def test_tokens_up_to_the_mark_are_rebuilt() -> None:
    assert chunks(Prefill(100, 80), 100, 16, [50, 34], evicted()) == [Chunk(50, 50, 0), Chunk(34, 14, 0)]


def test_the_mark_never_covers_the_last_token_which_was_not_computed() -> None:
    assert chunks(Prefill(100, 104), 100, 0, [100], evicted()) == [Chunk(100, 99, 0)]


def test_a_cache_hit_beyond_the_mark_leaves_nothing_to_rebuild() -> None:
    assert chunks(Prefill(100, 40), 100, 64, [36], evicted()) == [Chunk(36, 0, 0)]


def test_evicted_blocks_count_when_they_are_full() -> None:
    assert chunks(Prefill(100), 100, 0, [24, 24, 52], evicted(0, 1, 5)) == [
        Chunk(24, 0, 16),
        Chunk(24, 0, 16),
        Chunk(52, 0, 16),
    ]


def test_an_evicted_block_counts_only_beyond_the_mark_and_the_hit() -> None:
    assert chunks(Prefill(64, 40), 64, 0, [64], evicted(0, 1, 2, 3)) == [Chunk(64, 40, 24)]
    assert chunks(Prefill(64), 64, 40, [24], evicted(2, 3)) == [Chunk(24, 0, 24)]


def test_a_load_that_failed_is_computed_from_where_it_failed() -> None:
    """The second step begins before the first one: what it computes is counted, and no total falls."""
    memory, prefill = evicted(1, 3), Prefill(128)
    assert prefill.advance(64, 16, hashes(128), BLOCK, memory) == Chunk(16, 0, 16)
    assert prefill.advance(32, 16, hashes(128), BLOCK, memory) == Chunk(16, 0, 16)


def test_a_block_is_evicted_once() -> None:
    memory = evicted(0)
    assert chunks(Prefill(32), 32, 0, [32], memory) == [Chunk(32, 0, 16)]
    assert chunks(Prefill(32), 32, 0, [32], memory) == [Chunk(32, 0, 0)]


@given(
    target=st.integers(2, 400),
    mark=st.integers(0, 500),
    hit=st.integers(0, 24),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=12),
    gone=st.frozensets(st.integers(0, 30)),
)
def test_however_it_is_cut_the_sums_are_the_same(
    target: int, mark: int, hit: int, sizes: list[int], gone: frozenset[int]
) -> None:
    start = min(hit * BLOCK, target - 1)
    rest, cut = target - start, []
    for size in sizes:
        if rest:
            cut.append(min(size, rest))
            rest -= cut[-1]
    if rest:
        cut.append(rest)
    found = chunks(Prefill(target, mark), target, start, cut, evicted(*gone))
    known = min(mark, target - 1)
    assert sum(chunk.tokens for chunk in found) == target - start
    assert sum(chunk.rebuilt_preempted for chunk in found) == max(0, known - start)
    floor = max(start, known)
    expected = sum(max(0, (b + 1) * BLOCK - max(b * BLOCK, floor)) for b in gone if (b + 1) * BLOCK <= target)
    assert sum(chunk.rebuilt_evicted for chunk in found) == expected


def test_the_memory_of_evictions_is_bounded_and_forgets_the_oldest() -> None:
    memory = EvictedHashes(limit=100)
    for key in range(1000):
        memory.add(key)
        assert len(memory) <= 100
    assert all(memory.take(key) for key in range(951, 1000))  # at least half of the limit
    assert not any(memory.take(key) for key in range(900))


def test_an_eviction_that_is_seen_again_is_young_again() -> None:
    memory = EvictedHashes(limit=4)
    for key in (1, 2, 1, 3):
        memory.add(key)
    assert [memory.take(key) for key in (1, 1, 2, 3)] == [True, False, False, True]


def test_growth_is_measured_over_ten_to_twenty_seconds() -> None:
    growth = SteepestGrowth()
    for second in range(int(WINDOW_SECONDS)):
        assert growth.observe(float(second), {"a": 100 + second, "b": 100 + 3 * second}) is None
    assert growth.observe(10.0, {"a": 110, "b": 130}) == ("b", 3.0)
    assert growth.observe(19.0, {"a": 119, "b": 157}) == ("b", 3.0)
    assert growth.observe(20.0, {"a": 120, "b": 130}) == ("a", 1.0)  # b stood still since 10 s


def test_what_was_not_there_before_has_no_slope_and_what_shrinks_a_slope_of_zero() -> None:
    growth = SteepestGrowth()
    growth.observe(0.0, {"a": 100})
    assert growth.observe(10.0, {"new": 900}) is None
    assert growth.observe(12.0, {"a": 90, "new": 950}) == ("a", 0.0)


def test_growth_follows_a_bounded_number_the_largest() -> None:
    growth = SteepestGrowth()
    many = {f"r{i}": i for i in range(2 * MAX_REQUESTS)}
    growth.observe(0.0, many)
    assert growth.observe(10.0, {"r0": 10_000}) is None
    assert growth.observe(11.0, {f"r{2 * MAX_REQUESTS - 1}": 2 * MAX_REQUESTS}) == ("r2047", 1 / 11)


@pytest.mark.parametrize(("value", "bucket"), [(0.0, 0), (1.0, 0), (1.5, 1), (2.0, 1), (2.1, 2)])
def test_a_bucket_includes_its_bound(value: float, bucket: int) -> None:
    buckets = Buckets((1.0, 2.0))
    buckets.add(value)
    row = buckets.row()
    assert row.counts == tuple(int(i == bucket) for i in range(3))
    assert (row.bounds, row.sum) == ((1.0, 2.0), value)
