"""From torch's structures to rows: counters, segments, configuration, sleep mode's tags."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_hooks.allocator import BAND_BOUNDS, MAX_PRIVATE_POOLS, MAX_TAGS, MIB, OTHER_POOLS, PrivatePoolRow
from engine_hooks.torch import tags
from engine_hooks.torch.configuration import configuration_of
from engine_hooks.torch.segments import rows_of
from engine_hooks.torch.stats import row_of, size_of
from exporters.collectors.allocator import BANDS
from tests.bed.fake_torch import FakeTorch
from tests.bed.snapshots import AllocatorBed, as_torch_1_13, server_like


def walk(*beds: AllocatorBed) -> Any:
    return rows_of([segment for bed in beds for segment in bed.snapshot()["segments"]], {})


def test_counters_come_from_where_torch_has_them() -> None:
    torch = FakeTorch()
    torch.empty(30 * MIB)
    stats = torch._C._cuda_memoryStats(0)
    stats["allocated_bytes"]["all"]["peak"] = 77
    stats["reserved_bytes_by_private_pools"] = {(0, 1): {"all": {"current": 5}}, (1, 0): {"all": {"current": 6}}}
    row, fields = row_of(0, "GPU-x", stats, native=True)
    assert (row.device, row.uuid) == (0, "GPU-x")
    assert (row.allocated_bytes, row.allocated_peak_bytes) == (30 * MIB, 77)
    assert (row.reserved_bytes, row.active_bytes, row.requested_bytes) == (30 * MIB, 30 * MIB, 30 * MIB)
    assert (row.retries_total, row.ooms_total, row.device_allocs_total, row.device_frees_total) == (0, 0, 1, 0)
    assert row.private_reserved_bytes == 11
    assert fields == 19


def test_what_this_torch_does_not_have_is_absent_and_not_zero() -> None:
    row, fields = row_of(0, "", {"allocated_bytes": {"all": {"current": 5}}, "num_ooms": 0}, native=True)
    assert (row.allocated_bytes, row.ooms_total, fields) == (5, 0, 2)
    assert (row.reserved_bytes, row.retries_total, row.private_reserved_bytes) == (None, None, None)


@pytest.mark.parametrize("value", [-1, 2**60, "7", 1.5, None, True])
def test_what_is_no_size_is_not_sent(value: Any) -> None:
    assert size_of(value) is None
    assert row_of(0, "", {"num_ooms": value}, native=True)[0].ooms_total is None


def test_the_asynchronous_allocators_zeros_are_not_told() -> None:
    torch = FakeTorch(backend="cudaMallocAsync")
    nothing, fields = row_of(0, "", torch._C._cuda_memoryStats(0), native=False)
    assert (nothing.allocated_bytes, nothing.ooms_total, fields) == (None, None, 0)
    torch.empty(30 * MIB)
    row, fields = row_of(0, "", torch._C._cuda_memoryStats(0), native=False)
    assert (row.allocated_bytes, row.reserved_bytes, fields) == (30 * MIB, 30 * MIB, 4)
    assert (row.active_bytes, row.retries_total) == (None, None)


def test_free_blocks_by_size_with_the_band_between_16_and_32() -> None:
    bed = AllocatorBed()
    blocks = [bed.alloc(size * MIB) for size in (16, 20, 32, 34, 600)]
    for block in blocks:
        bed.free(block)
    (row,) = walk(bed)
    by_band = dict(zip(BANDS, zip(row.band_blocks, row.band_bytes, strict=True), strict=True))
    assert by_band["8MiB-16MiB"] == (1, 16 * MIB)
    assert by_band["16MiB-32MiB"] == (2, 52 * MIB)
    assert by_band["32MiB-64MiB"] == (1, 34 * MIB)
    assert by_band["512MiB-1GiB"] == (1, 600 * MIB)
    assert (sum(row.band_blocks), sum(row.band_bytes)) == (5, row.free_bytes)
    assert (row.free_bytes, row.largest_free_bytes) == (702 * MIB, 600 * MIB)
    assert row.whole_free_bytes == row.reserved_bytes == 702 * MIB
    assert {16 * MIB, 32 * MIB} <= set(BAND_BOUNDS)


def test_what_is_free_in_a_private_pool_is_not_free_to_others() -> None:
    bed = AllocatorBed()
    bed.free(bed.alloc(64 * MIB, pool=(0, 1)))
    bed.alloc(32 * MIB, pool=(0, 1), stream=7)
    bed.alloc(12 * MIB)
    (row,) = rows_of(bed.snapshot()["segments"], {(0, 1): "weights"})
    assert (row.free_bytes, row.largest_free_bytes, row.whole_free_bytes) == (0, 0, 0)
    assert row.private == (
        PrivatePoolRow(pool="0.1", segments=2, reserved_bytes=96 * MIB, active_bytes=32 * MIB, tags="weights"),
    )
    assert (row.reserved_bytes, row.active_bytes, row.streams) == (108 * MIB, 44 * MIB, 2)


def test_many_private_pools_are_folded_and_none_is_lost() -> None:
    bed = AllocatorBed()
    for number in range(MAX_PRIVATE_POOLS + 5):
        bed.alloc((20 + 2 * number) * MIB, pool=(0, number + 1))
    (row,) = walk(bed)
    assert len(row.private) == MAX_PRIVATE_POOLS + 1
    assert (row.private[-1].pool, row.private[-1].segments) == (OTHER_POOLS, 5)
    assert sum(pool.reserved_bytes for pool in row.private) == row.reserved_bytes


def test_blocks_that_wait_for_another_stream_are_not_free() -> None:
    bed = AllocatorBed()
    bed.free(bed.alloc(20 * MIB), wait=True)
    (row,) = walk(bed)
    assert (row.free_bytes, row.active_bytes) == (0, 20 * MIB)


def test_small_and_large_pools_streams_and_expandable_segments() -> None:
    bed = AllocatorBed(expandable=True)
    bed.alloc(1000)
    bed.alloc(5 * MIB, stream=3)
    (row,) = walk(bed)
    small, large = row.pools
    assert (small.kind, small.reserved_bytes, small.free_bytes) == ("small", 2 * MIB, 2 * MIB - 1024)
    assert (large.kind, large.reserved_bytes, large.largest_free_bytes) == ("large", 20 * MIB, 15 * MIB)
    assert (row.streams, row.expandable_segments, row.expandable_bytes) == (2, 2, 22 * MIB)
    (row,) = walk(AllocatorBed()) or (None,)
    assert row is None


def test_each_device_has_a_row() -> None:
    beds = AllocatorBed(device=0), AllocatorBed(device=3)
    for bed in beds:
        bed.alloc((bed.device + 1) * 20 * MIB)
    assert [(row.device, row.active_bytes) for row in walk(*beds)] == [(0, 20 * MIB), (3, 80 * MIB)]


@given(st.integers(0, 2**16), st.integers(0, 80))
def test_the_parts_add_up(seed: int, steps: int) -> None:
    bed = server_like(steps=steps, seed=seed)
    (row,) = walk(bed)
    shared, private = sum(p.reserved_bytes for p in row.pools), sum(p.reserved_bytes for p in row.private)
    assert shared + private == row.reserved_bytes == bed.reserved
    assert sum(p.free_bytes for p in row.pools) == row.free_bytes == sum(row.band_bytes)
    assert sum(p.active_bytes + p.free_bytes for p in row.pools) == shared
    assert max(p.largest_free_bytes for p in row.pools) == row.largest_free_bytes <= row.free_bytes
    assert row.whole_free_bytes <= row.free_bytes


def test_the_oldest_form_of_segments_is_read() -> None:
    bed = server_like(steps=50)
    (old,) = rows_of(as_torch_1_13(bed.snapshot()), {})
    (new,) = walk(bed)
    assert (old.reserved_bytes, old.active_bytes) == (new.reserved_bytes, new.active_bytes)
    assert old.private == ()  # it told of no pools


@pytest.mark.parametrize(
    ("env", "told", "expected"),
    [
        ({}, {}, ("", None, None, None)),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, {}, ("expandable_segments:True", True, None, None)),
        (
            {
                "PYTORCH_ALLOC_CONF": "max_split_size_mb:128, garbage_collection_threshold:0.8",
                "PYTORCH_CUDA_ALLOC_CONF": "x",
            },
            {},
            ("max_split_size_mb:128, garbage_collection_threshold:0.8", None, 128 * MIB, 0.8),
        ),
        # What torch says itself counts: it may have been set from inside the program.
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            {"expandable_segments": False},
            (..., False, None, None),
        ),
        ({}, {"max_split_size": -1, "garbage_collection_threshold": 0.0}, ("", None, None, 0.0)),
        ({}, {"max_split_size": 2**63 - 1}, ("", None, None, None)),
        ({"PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:soon,\x07"}, {}, (..., None, None, None)),
    ],
)
def test_the_configuration(env: dict[str, str], told: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = configuration_of(env, told)
    assert all(want is ... or want == have for want, have in zip(expected, found, strict=True))
    assert found.text.isprintable()


def allocation(tag: str, size: int, *, backed: bool = False, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(handle=(0, size, 1, 2), tag=tag, cpu_backup_tensor=object() if backed else None, **more)


def sleeper(*allocations: Any, pools: Any = ()) -> SimpleNamespace:
    return SimpleNamespace(pointer_to_data=dict(enumerate(allocations)), allocator_and_pools=dict(pools))


def test_sleep_mode_by_tag() -> None:
    found = sleeper(
        allocation("weights", 30, backed=True, is_asleep=True),
        allocation("weights", 5, is_asleep=False),
        allocation("kv_cache", 100, is_asleep=True),
    )
    rows = {row.tag: row for row in tags.tag_rows(found)}
    assert (rows["weights"].bytes, rows["weights"].mapped_bytes, rows["weights"].backed_up_bytes) == (35, 5, 30)
    assert (rows["kv_cache"].bytes, rows["kv_cache"].mapped_bytes, rows["kv_cache"].backed_up_bytes) == (100, 0, 0)


def test_a_sleep_mode_that_does_not_mark_what_sleeps_does_not_tell_what_is_mapped() -> None:
    (row,) = tags.tag_rows(sleeper(allocation("kv_cache", 100)))
    assert (row.bytes, row.mapped_bytes) == (100, None)


def test_tags_are_bounded() -> None:
    assert len(tags.tag_rows(sleeper(*(allocation(f"t{i}", i, is_asleep=False) for i in range(50))))) == MAX_TAGS


def test_pools_of_sleep_mode_have_its_names_in_all_versions() -> None:
    pool = SimpleNamespace(id=(0, 4))
    for kept in ((pool, object()), [[pool, object()]]):
        assert tags.pools_by_id(sleeper(pools={"weights": kept, "kv_cache": kept})) == {(0, 4): "kv_cache, weights"}


def test_sleep_mode_is_looked_at_and_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tags.allocator() is None
    made = SimpleNamespace(instance=None, get_instance=lambda: pytest.fail("made"))
    monkeypatch.setitem(sys.modules, "vllm.device_allocator.cumem", SimpleNamespace(CuMemAllocator=made))
    assert tags.allocator() is None
    made.instance = found = sleeper()
    assert tags.allocator() is found
