"""GPUs on which more is taken than there is room for; a full one that serves is well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.policy.types import DEFAULT, TEXTBOOK, Policy
from agent.signals.types import NodeSignals
from agent.state import AgentState
from engine_hooks.members import WorkerRow
from tests.unit.allocators import make_event, make_failure
from tests.unit.test_device_growth import fall
from tests.unit.timeline import GIB, MIB, UNIX, engine, gpu, member, pool, state, times
from tests.unit.told import Told, allocator_signals, engine_signals, gpu_signals, node

KIND = "over_budget"
FULL = {"use_ratio": 0.97, "above_page_seconds": 100.0, "free_bytes": 2 * GIB}


def states(seconds: float = 200, **parts: Any) -> Iterator[AgentState]:
    values: dict[str, Any] = {"engines": (engine(members=(member(),)),), "gpus": [gpu(77 * GIB)]}
    for t in times(seconds):
        yield state(t, **values | parts)


def test_full_with_failed_allocations_warns_for_oom_pages_already() -> None:
    failure = make_failure(rank=0, event=make_event(count=3, at=UNIX))
    signals = node(gpus=gpu_signals(**FULL))
    found = Told(KIND, signals).last(states(failures=(failure,), waterfalls=(fall(other_processes=3 * GIB),)))
    assert found is not None
    assert (found.phase, found.tier, found.subject.gpu) == ("confirmed", "warn", "0")
    assert found.sentence == (
        "GPU 0 is 97% used, 2.0 GiB free, and 3 allocations failed in the last 10 min. 20.0 GiB are held by what is "
        "not of kvtide's engines."
    )
    assert found.remedy.startswith("End or move the other processes")
    assert "gives nothing back to the device" in found.remedy


def test_full_with_a_cache_that_has_to_be_emptied_pages_and_much_warns() -> None:
    retries, few = allocator_signals(retries_per_minute=4.0), allocator_signals(retries_per_minute=2.0)
    full = Told(KIND, node(gpus=gpu_signals(**FULL), allocators=retries)).last(states())
    much = Told(KIND, node(gpus=gpu_signals(), allocators=retries)).last(states())
    some = Told(KIND, node(gpus=gpu_signals(**FULL), allocators=few)).last(states())
    assert full is not None
    assert much is not None
    assert some is not None
    assert (full.tier, much.tier, some.tier) == ("page", "warn", "warn")
    assert "torch had to empty its cache and try again 4.0 times a minute" in full.sentence
    assert full.remedy.startswith("Restart with a lower gpu_memory_utilization")


def test_others_who_have_taken_the_last_room_are_told() -> None:
    signals = node(gpus=gpu_signals(use_ratio=0.995, above_page_seconds=300.0, free_bytes=400 * MIB))
    taken = Told(KIND, signals).last(states(waterfalls=(fall(context=GIB, driver=GIB, other_processes=17 * GIB),)))
    assert taken is not None
    assert (taken.phase, taken.tier) == ("confirmed", "warn")
    assert "17.0 GiB are held by what is not of kvtide's engines" in taken.sentence


@pytest.mark.parametrize(
    "why", ["preallocated", "nearly full", "training", "old failure", "training fails", "one retry", "unknown"]
)
def test_what_looks_like_it_and_is_not(why: str) -> None:
    row, parts = gpu_signals(**FULL), {"waterfalls": (fall(context=GIB, driver=18 * GIB),)}
    rows: tuple[Any, ...] = ()
    if why == "preallocated":
        row = gpu_signals(kv_share_ratio=0.85)
    elif why == "nearly full":
        row = gpu_signals(use_ratio=0.995, above_page_seconds=9999.0, free_bytes=300 * MIB)
    elif why == "training":  # at constant use beside the engine
        parts = {"waterfalls": (fall(context=GIB, driver=GIB, other_processes=16 * GIB),)}
    elif why == "one retry":
        rows = (allocator_signals(retries_per_minute=1.0),)
    elif why == "old failure":
        parts["failures"] = (make_failure(rank=0, event=make_event(at=UNIX - 900)),)
    elif why == "training fails":  # that job's own affair
        rows = (allocator_signals(engine="", process="train", role="torch", retries_per_minute=9.0),)
        parts["failures"] = (make_failure(engine="", process="train", event=make_event(at=UNIX)),)
    else:
        row = gpu_signals(use_ratio=None)
    assert Told(KIND, node(gpus=row, allocators=rows)).last(states(**parts)) is None


def test_the_textbook_judges_use_alone() -> None:
    def tier(policy: Policy, **changes: Any) -> str | None:
        found = Told(KIND, node(gpus=gpu_signals(**changes)), policy).last(states(5))
        return found and found.tier

    assert tier(TEXTBOOK) == "warn"
    assert tier(TEXTBOOK, **FULL) == "page"
    assert tier(TEXTBOOK, use_ratio=0.8, above_warn_seconds=0.0, kv_share_ratio=0.81) == "warn"
    assert tier(TEXTBOOK, use_ratio=0.8, above_warn_seconds=0.0, kv_share_ratio=0.91) == "page"
    assert tier(TEXTBOOK, use_ratio=0.8, above_warn_seconds=0.0) is None
    assert tier(TEXTBOOK, above_warn_seconds=29.0) is None
    assert tier(DEFAULT, **FULL) is None


def test_of_two_gpus_only_that_of_the_failure() -> None:
    failure = make_failure(rank=0, event=make_event(at=UNIX, device=0))
    signals = NodeSignals(engines=(engine_signals(),), gpus=(gpu_signals(**FULL), gpu_signals(gpu="1", **FULL)))
    gpus = [gpu(77 * GIB), gpu(77 * GIB, gpu="1", uuid="GPU-1", index=1)]
    from tests.unit.allocators import make_allocator, make_device

    worker = member(make_allocator(devices=(make_device(uuid="GPU-1"),)))
    told = Told(KIND, signals)
    for now in states(20, failures=(failure,), gpus=gpus, engines=(engine(members=(worker,)),)):
        found = told.look(now)
    assert [each.subject.gpu for each in found] == ["1"]


def test_its_life() -> None:
    def given(now: AgentState) -> NodeSignals:
        harm = allocator_signals(retries_per_minute=2.0 if 10 <= now.at - UNIX < 50 else 0.0)
        return node(gpus=gpu_signals(**FULL), allocators=harm)

    assert Told(KIND, given).phases(states(300)) == ["none", "suspect", "confirmed", "resolved", "none"]


def test_one_oom_gets_people_up_once() -> None:
    failure = make_failure(rank=0, event=make_event(at=UNIX))
    full = node(gpus=gpu_signals(**FULL))
    seen = list(states(failures=(failure,)))
    pages = [kind for kind in (KIND, "oom") if (found := Told(kind, full).last(seen)) and found.tier == "page"]
    assert pages == ["oom"]


@pytest.mark.parametrize(("dtype", "tier"), [("fp8_e4m3", "warn"), ("auto", None)])
def test_with_fp8_the_thresholds_are_lower(dtype: str, tier: str | None) -> None:
    failure = make_failure(rank=0, event=make_event(at=UNIX))
    signals = node(gpus=gpu_signals(use_ratio=0.8, above_warn_seconds=0.0))
    worker = WorkerRow(
        tensor_parallel_rank=0, pipeline_parallel_rank=0, device="cuda:0", device_uuid="GPU-0", kv_bytes=GIB
    )
    here = engine(pool=pool(cache_dtype=dtype), members=(member(worker=worker),))
    found = Told(KIND, signals).last(states(engines=(here,), failures=(failure,)))
    assert (found and found.tier) == tier
