"""The waterfall: each part is what it is in truth, whoever shares the GPU; and what no source tells is said."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_hooks.allocator import AllocatorRow
from tests.unit.allocators import make_allocator_state
from tests.unit.builders import make_frontend, make_pool
from tests.unit.waterfalls import (
    GIB,
    MIB,
    Rank,
    Torch,
    Truth,
    allocator_of,
    check_identity,
    device_row,
    engine_of,
    reasons,
    sizes,
    sleeping,
    waterfall_of,
    worker_of,
)

size = st.integers(0, 8 * GIB)
torches = st.builds(
    lambda graphs, unused, **rest: Torch(graphs=graphs, graphs_inactive=min(graphs, unused), **rest),
    active=size,
    inactive=size,
    graphs=size,
    unused=size,
    context=size,
)
ranks = st.builds(
    Rank,
    weights=size,
    draft=size,
    lora=size,
    encoder=size,
    kv=size,
    asleep=st.booleans(),
    sleeps=st.booleans(),
    torch=torches,
)
truths = st.builds(
    Truth,
    ranks=st.dictionaries(st.integers(100, 199), ranks, max_size=3),
    trainers=st.dictionaries(st.integers(200, 299), torches, max_size=2),
    foreign=st.dictionaries(st.integers(300, 399), size, max_size=3),
    driver=size,
    rest=size,
    free=size,
)


# -- where everything is told -----------------------------------------------------------------------------


@given(truths)
def test_every_part_is_what_it_is_in_truth_and_the_remainder_what_nobody_tells(truth: Truth) -> None:
    found = truth.waterfall()
    check_identity(found)
    assert sizes(found) == truth.parts()
    assert found.unattributed_bytes == truth.rest
    assert found.reasons == ()


MOVES = {
    "foreign": lambda t, n: replace(t, foreign=t.foreign | {301: t.foreign.get(301, 0) + n}),
    "free": lambda t, n: replace(t, free=t.free + n),
    "rest": lambda t, n: replace(t, rest=t.rest + n),
    **{
        name: lambda t, n, name=name: replace(t, ranks={101: replace(t.ranks[101], **{name: n + getattr(Rank, name)})})
        for name in ("weights", "draft", "lora", "encoder")
    },
    **{
        name: lambda t, n, name=name: replace(
            t, ranks={101: replace(t.ranks[101], torch=replace(Torch(), **{name: n + getattr(Torch, name)}))}
        )
        for name in ("active", "inactive", "graphs", "context")
    },
}
MOVED = {
    "foreign": "other_processes",
    "draft": "draft_model",
    "encoder": "encoder_cache",
    "active": "torch_active",
    "inactive": "torch_inactive",
}


@pytest.mark.parametrize("what", [name for name in MOVES if name not in ("rest", "free")])
@given(added=st.integers(1, 30 * GIB))
def test_what_is_added_moves_its_own_part_and_free_and_nothing_else(what: str, added: int) -> None:
    before = Truth()
    after = MOVES["free"](MOVES[what](before, added), -added)
    old, new = before.waterfall(), after.waterfall()
    was, now = sizes(old), sizes(new)
    moved = {part: now.get((part, o), 0) - was.get((part, o), 0) for part, o in was.keys() | now.keys()}
    assert {part: by for part, by in moved.items() if by} == {MOVED.get(what, what): added, "free": -added}
    assert (new.total_bytes, new.unattributed_bytes) == (old.total_bytes, old.unattributed_bytes)


def test_what_the_driver_books_on_nobody_moves_only_the_remainder() -> None:
    old, new = Truth().waterfall(), MOVES["free"](MOVES["rest"](Truth(), GIB), -GIB).waterfall()
    assert new.unattributed_bytes == 30 * MIB + GIB
    assert sizes(new) == sizes(old) | {("free", ""): 39 * GIB}


@given(truths, st.data())
def test_readings_that_do_not_belong_together_still_add_up(truth: Truth, data: st.DataObject) -> None:
    other = data.draw(truths)
    mixed = Truth(ranks=dict(zip(truth.ranks, other.ranks.values(), strict=False)))
    found = waterfall_of(truth.gpu(), *mixed.engines(), processes=other.processes(), host_pids=data.draw(st.booleans()))
    check_identity(found)


def test_the_kv_cache_is_split_as_the_pool_is_and_whole_where_that_is_not_known() -> None:
    truth = Truth()
    worker = worker_of(101, Rank())
    for pool in (None, make_pool(cached_idle=None), make_pool(held=900, cached_idle=200)):
        found = sizes(waterfall_of(truth.gpu(), engine_of("101", worker, pool=pool)))
        assert found[("kv_unsplit", "101")] == 2002 * MIB
        assert not {part for part, _ in found} & {"kv_held", "kv_cached_idle", "kv_empty"}
    split = sizes(waterfall_of(truth.gpu(), engine_of("101", worker)))
    assert [split[part, "101"] // MIB for part in ("kv_held", "kv_cached_idle", "kv_empty")] == [600, 400, 1002]


# -- sleep mode -------------------------------------------------------------------------------------------


def test_a_sleeping_engine_has_neither_weights_nor_kv_on_the_device() -> None:
    awake = Truth(ranks={101: Rank(sleeps=True)})
    asleep = sleeping(replace(awake, free=awake.free + awake.ranks[101].loaded + awake.ranks[101].kv))
    found = sizes(asleep.waterfall())
    assert {part for part, _ in found} & {"weights", "lora", "draft_model", "kv_held", "kv_unsplit"} == set()
    assert found["torch_active", "101"] == sizes(awake.waterfall())["torch_active", "101"]
    assert asleep.waterfall().unattributed_bytes == awake.rest


def test_what_sleeps_unused_is_not_taken_off_what_is_in_use() -> None:
    """A pool of sleep mode has room that nothing is in: it leaves the device, too."""
    rank, unused = Rank(asleep=True), 14 * MIB
    row = allocator_of(rank.torch, rank)
    weights = msgspec.structs.replace(row.tags[0], bytes=row.tags[0].bytes + unused)
    assert row.walk is not None
    (segments,) = row.walk.devices
    graphs, pool, kv = segments.private
    pool = msgspec.structs.replace(pool, reserved_bytes=pool.reserved_bytes + unused)
    more = row.devices[0].reserved_bytes + unused
    row = msgspec.structs.replace(
        row,
        devices=(msgspec.structs.replace(row.devices[0], reserved_bytes=more),),
        tags=(weights, row.tags[1]),
        walk=msgspec.structs.replace(
            row.walk,
            devices=(msgspec.structs.replace(segments, private=(graphs, pool, kv), reserved_bytes=more),),
        ),
    )
    truth = Truth(ranks={101: rank})
    found = waterfall_of(truth.gpu(), engine_of("101", worker_of(101, rank, row)))
    assert sizes(found) == truth.parts()
    assert found.unattributed_bytes == truth.rest


def test_an_engine_that_does_not_tell_what_sleeps_leaves_the_remainder_too_low_and_says_so() -> None:
    rank = Rank(asleep=True)
    row = allocator_of(rank.torch, rank)
    row = msgspec.structs.replace(row, tags=tuple(msgspec.structs.replace(tag, mapped_bytes=None) for tag in row.tags))
    found = waterfall_of(Truth(ranks={101: rank}).gpu(), engine_of("101", worker_of(101, rank, row)))
    check_identity(found)
    assert found.unattributed_bytes < -GIB
    assert "can't tell here what sleeps" in reasons(found)


# -- who is who -------------------------------------------------------------------------------------------


def test_two_ranks_of_an_engine_on_one_gpu_are_added_up() -> None:
    truth = Truth(ranks={101: Rank(), 102: Rank(weights=GIB)})
    found = waterfall_of(truth.gpu(), engine_of("m", *(worker_of(pid, rank) for pid, rank in truth.ranks.items())))
    assert sizes(found)["weights", "m"] == 5 * GIB
    assert found.unattributed_bytes == truth.rest


def test_a_worker_in_its_cores_process_is_counted_once() -> None:
    truth = Truth()
    found = waterfall_of(truth.gpu(), engine_of("101", worker_of(101, Rank()), pid=101, own_pid=101))
    assert (sizes(found), found.unattributed_bytes) == (truth.parts(), truth.rest)


def test_two_engines_in_one_process_each_have_their_own_and_share_the_rest() -> None:
    first, second = Rank(), Rank(weights=GIB, kv=500 * MIB, torch=Torch(0, 0, 0, 0, 0))
    both = replace(first, weights=first.weights + second.named)  # torch does not tell them apart
    silent = make_allocator_state(row=AllocatorRow(reason="another member of this process tells of it"))
    engines = (
        engine_of("a", worker_of(101, first, allocator_of(first.torch, both)), pid=101),
        engine_of("b", worker_of(101, second, allocator=silent), pid=101),
    )
    found = waterfall_of(Truth(ranks={101: both}).gpu(), *engines)
    parts = sizes(found)
    assert (parts["weights", "a"], parts["weights", "b"]) == (4 * GIB, GIB)
    assert (parts["torch_active", "a"], ("torch_active", "b") in parts) == (Torch().active, False)
    assert (found.unattributed_bytes, found.reasons) == (30 * MIB, ())


def test_a_context_on_a_gpu_that_is_not_its_own() -> None:
    """A rank of another GPU has a context here, by torch or not by torch."""
    mine, elsewhere = Rank(), device_row(Torch(), device=1, uuid="GPU-0000-1")
    peer = device_row(Torch(0, 0, 0, 0, 0))
    for rows in ((peer, elsewhere), (elsewhere,)):
        row = msgspec.structs.replace(allocator_of(Torch()), devices=rows, walk=None)
        other = worker_of(102, Rank(), row)
        other = msgspec.structs.replace(
            other, worker=msgspec.structs.replace(other.worker, device="cuda:1", device_uuid="GPU-0000-1")
        )
        truth = Truth(foreign={102: 480 * MIB})
        found = waterfall_of(truth.gpu(), engine_of("m", worker_of(101, mine), other))
        assert sizes(found)["context", "m"] == Torch().context + 480 * MIB
        assert ("other_processes", "") not in sizes(found)
        assert found.unattributed_bytes == truth.rest


@pytest.mark.parametrize(
    "process",
    [
        worker_of(102, Rank(), up=False, worker=None, allocator=None),
        make_frontend(pid=102),
        worker_of(102, Rank(), AllocatorRow(reason="no CUDA in this process"), worker=None),
        worker_of(102, Rank(), AllocatorRow(unsupported={"counters": "off after errors: x"}), worker=None),
    ],
    ids=["silent", "frontend", "torch without CUDA", "unreadable"],
)
def test_a_process_of_ours_that_says_nothing_is_not_foreign(process: Any) -> None:
    truth = Truth(foreign={102: 3 * GIB, 301: GIB})
    parts = sizes(waterfall_of(truth.gpu(), engine_of("101", worker_of(101, Rank()), process)))
    assert (parts["untold", "101"], parts["other_processes", ""]) == (3 * GIB, GIB)


def test_a_process_whose_link_has_ended_is_foreign() -> None:
    truth = Truth()
    found = waterfall_of(
        truth.gpu(), engine_of("101", worker_of(101, Rank(), link_up=False, allocator=None), link_up=False)
    )
    assert sizes(found)["other_processes", ""] == truth.booked()[101]


def test_what_a_worker_has_counted_is_told_even_where_its_allocator_tells_nothing() -> None:
    rank = Rank()
    row = AllocatorRow(backend="pluggable", unsupported={"counters": "the pluggable allocator keeps none"})
    parts = sizes(waterfall_of(Truth().gpu(), engine_of("101", worker_of(101, rank, row))))
    assert parts["weights", "101"] == rank.weights
    assert parts["untold", "101"] == rank.torch.reserved + rank.torch.context


def test_an_allocator_that_counts_only_bytes() -> None:
    """cudaMallocAsync: no segments, no active bytes."""
    torch = Torch(graphs=0, graphs_inactive=0)
    row = device_row(torch, Rank().named, active_bytes=None, requested_bytes=None, private_reserved_bytes=None)
    allocator = allocator_of(torch, Rank(), devices=(row,), walk=None, unsupported={"walk": "no segments"})
    truth = Truth(ranks={101: Rank(torch=torch)})
    found = waterfall_of(truth.gpu(), engine_of("101", worker_of(101, Rank(), allocator)))
    assert (sizes(found), found.unattributed_bytes) == (truth.parts(), truth.rest)
    assert "(no segments)" in reasons(found)


def test_devices_without_a_uuid_are_told_by_the_drivers_list_and_only_if_there_is_one() -> None:
    row = allocator_of(Torch(), Rank(), devices=(device_row(Torch(), Rank().named, uuid=""),))
    worker = worker_of(101, Rank(), row)
    truth = Truth()
    assert sizes(waterfall_of(truth.gpu(), engine_of("101", worker))) == truth.parts()
    two = msgspec.structs.replace(row, devices=(row.devices[0], msgspec.structs.replace(row.devices[0], device=1)))
    parts = sizes(waterfall_of(truth.gpu(), engine_of("101", worker_of(101, Rank(), two))))
    assert {part for part, owner in parts if owner} == {"context"}, "not counted twice"


def test_the_truth_of_these_tests_has_every_source() -> None:
    assert {f.name for f in fields(Rank)} - {"asleep", "sleeps", "kv", "torch"} <= set(MOVES)
