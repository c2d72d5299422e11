"""Tenants, allocators, GPUs, processes and cgroups: what their signals are made of."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from agent.policy.types import DEFAULT
from agent.signals.node import NodeTracker
from agent.signals.types import NodeSignals
from agent.sources.device.state import GpuMemory
from agent.state import AgentState
from tests.unit.allocators import MIB, make_allocator, make_allocator_state, make_device, make_segments, make_walk
from tests.unit.builders import make_engine, make_state, make_torch_process, make_worker
from tests.unit.details import make_detail, make_histogram, make_tenant
from tests.unit.node_builders import make_cgroup, make_devices, make_gpu, make_host, make_process, make_waterfall

TOTAL = 80_000 * MIB


def state(n: float, *engines: Any, **changes: Any) -> AgentState:
    return make_state(*engines, monotonic=1000.0 + n, at=1_700_000_000.0 + n, **{"scrape": None} | changes)


def play(states: list[AgentState]) -> list[NodeSignals]:
    tracker = NodeTracker(DEFAULT)
    return [tracker.take(each) for each in states]


def gpu(used: int, **changes: Any) -> AgentState:
    memory = GpuMemory(total=TOTAL, used=used, free=TOTAL - used - 500 * MIB, reserved=500 * MIB)
    return make_devices(make_gpu("0", memory=memory, **changes))


def test_a_gpu_s_growth_is_of_what_is_used_and_a_constant_one_has_none() -> None:
    grows = play([state(n, device=gpu(20_000 * MIB + n * 4 * MIB)) for n in range(320)])[-1].gpus[0]
    stays = play([state(n, device=gpu(20_000 * MIB + (n % 3) * MIB)) for n in range(320)])[-1].gpus[0]

    assert grows.growth is not None
    assert grows.growth.low > 0
    assert grows.growth.per_minute == pytest.approx(240 / 80_000, rel=0.05)
    assert grows.free_bytes == TOTAL - 500 * MIB - 20_000 * MIB - 319 * 4 * MIB
    assert stays.growth is not None
    assert stays.growth.low <= 0


def test_a_gpu_s_parts_come_from_its_waterfall_and_are_none_without_a_sum() -> None:
    told = play([state(0)])[-1].gpus[0]
    untold = play([state(0, waterfalls=(make_waterfall(total_bytes=None, unattributed_bytes=None),))])[-1].gpus[0]

    assert told.kv_share_ratio == pytest.approx((12_000 + 8_000 + 20_000 + 600) / 81_920)
    rest = make_waterfall().unattributed_bytes or 0
    assert told.other_bytes == (1100 + 500 + 700) * MIB + max(0, rest)
    assert told.foreign_bytes == 1024 * MIB
    assert (untold.kv_share_ratio, untold.other_bytes, untold.foreign_bytes) == (None, None, None)


def test_a_gpu_s_use_lasts_until_a_gap_and_a_lost_one_begins_anew() -> None:
    full = gpu(79_000 * MIB)
    lost = make_devices(make_gpu("0", lost="gone"))
    signals = play([state(n, device=full) for n in range(50)])
    assert signals[-1].gpus[0].above_page_seconds == 49.0
    signals = play([*(state(n, device=full) for n in range(50)), state(200, device=full)])
    assert signals[-1].gpus[0].above_page_seconds == 0.0
    signals = play([*(state(n, device=full) for n in range(50)), state(50, device=lost), state(51, device=full)])
    assert signals[50].gpus == ()
    assert signals[51].gpus[0].up_seconds == 0.0


def test_a_gpu_that_nobody_reads_is_not_full_meanwhile() -> None:
    full = gpu(79_000 * MIB)
    signals = play([state(n, device=None if 10 <= n < 40 else full) for n in range(41)])
    assert signals[39].gpus == ()
    assert signals[40].gpus[0].above_page_seconds == 0.0


def test_what_is_not_told_any_more_grows_no_more() -> None:
    told = [state(n, device=gpu(20_000 * MIB + n * 4 * MIB)) for n in range(320)]
    silent = make_devices(make_gpu("0", memory=None, unavailable={"memory": "NVML error 999"}))
    signals = play([*told, *(state(n, device=silent) for n in range(320, 400))])
    assert signals[319].gpus[0].growth is not None
    assert (signals[-1].gpus[0].growth, signals[-1].gpus[0].slow) == (None, None)


def worker(n: int, **device: Any) -> AgentState:
    values = {"uuid": "GPU-0", "allocated_bytes": 10_000 * MIB, "reserved_bytes": 12_000 * MIB} | device
    row = make_allocator(devices=(make_device(**values),), tags=())
    member = make_worker(allocator=make_allocator_state(row=row), instance="w")
    return state(n, make_engine(members=(member,)), processes=(), device=gpu(20_000 * MIB))


def test_an_allocator_s_ratios_are_without_what_sleeps() -> None:
    signals = play([state(0, processes=(make_torch_process(),))])[-1]
    told = next(each for each in signals.allocators if each.process == "train")

    assert told.fragmentation == pytest.approx(1 - 100 / 240)
    assert told.overcommit == pytest.approx((1000 - 40) / (690 - 40))
    assert told.slack_bytes == 310 * MIB
    empty = make_walk(devices=(make_segments(free_bytes=0, largest_free_bytes=0),))
    row = make_allocator_state(row=make_allocator(walk=empty))
    none = play([state(0, make_engine(members=(make_worker(allocator=row),)), processes=())])[-1].allocators[0]
    assert none.fragmentation is None


def test_an_allocator_grows_against_its_gpu() -> None:
    last = play([worker(n, allocated_bytes=10_000 * MIB + n * 2 * MIB) for n in range(0, 400, 5)])[-1].allocators[0]

    assert last.gpu == "0"
    assert last.growth is not None
    assert last.growth.low > 0
    assert last.growth.per_minute == pytest.approx(120 / 80_000, rel=0.05)


def test_a_mig_instance_is_found_by_what_torch_calls_it() -> None:
    memory = GpuMemory(total=40_000 * MIB, used=20_000 * MIB, free=20_000 * MIB, reserved=0)
    parts = (
        make_gpu("0/1", uuid="MIG-aa", parent="0", memory=memory),
        make_gpu("0/2", uuid="MIG-bb", parent="0", memory=memory, compute_instances=("MIG-cc", "MIG-dd")),
    )
    card = make_devices(make_gpu("0", uuid="GPU-0", instances=parts))
    for uuid, label in (("GPU-aa", "0/1"), ("MIG-bb", "0/2"), ("GPU-CC", "0/2"), ("GPU-0", ""), ("", "")):
        told = play([replace(worker(0, uuid=uuid), device=card)])[-1].allocators[0]
        assert (told.gpu, told.allocated_ratio) == (label, 0.25 if label else None)
    told = play([worker(0, uuid="")])[-1].allocators[0]
    assert (told.gpu, told.allocated_ratio) == ("0", 0.125), "the only one there is"


def test_retries_and_failures_are_counted_and_a_new_process_begins_anew() -> None:
    states = [worker(n, retries_total=3 + n // 10, ooms_total=1 + (n >= 30)) for n in range(70)]
    signals = play(states)

    assert signals[-1].allocators[0].retries_per_minute == pytest.approx(6, abs=1)
    assert signals[-1].allocators[0].ooms_per_hour == 1.0
    assert signals[10].allocators[0].ooms_per_hour == 0.0


def test_a_cache_that_is_emptied_is_noted_for_a_minute() -> None:
    states = [worker(n, reserved_bytes=(12_000 if n < 20 else 10_200) * MIB) for n in range(100)]
    signals = play(states)

    assert not signals[15].allocators[0].flushed
    assert signals[30].allocators[0].flushed
    assert not signals[99].allocators[0].flushed


def cgroup(n: int, used: int, **changes: Any) -> AgentState:
    group = make_cgroup(
        working_set_bytes=used * MIB, current_bytes=used * MIB, limit_current_bytes=used * MIB, limit_bytes=8000 * MIB
    )
    return state(n, host=make_host(cgroups=(group,), processes=(), **changes))


def test_a_cgroup_s_limit_is_forecast_where_it_surely_grows() -> None:
    grows = play([cgroup(n, 4000 + n // 2) for n in range(600)])[-1].host[0]
    stays = play([cgroup(n, 7900 + n % 2) for n in range(600)])[-1].host[0]

    assert grows.limit_seconds is not None
    assert grows.limit_seconds.seconds == pytest.approx((8000 - 4299) * 2, rel=0.1)
    assert grows.growth is not None
    assert grows.growth.per_minute == pytest.approx(30 / 4297, rel=0.05)
    assert stays.limit_seconds is None
    assert stays.limit_ratio == pytest.approx(7900 / 8000, rel=0.01)


def test_a_process_that_starts_again_begins_anew() -> None:
    def process(n: int) -> AgentState:
        row = make_process(pid=1 if n < 400 else 2, resident_bytes=(4000 + n) * MIB)
        return state(n, host=make_host(processes=(row,), cgroups=()))

    signals = play([process(n) for n in range(410)])

    assert signals[399].host[0].growth is not None
    assert signals[-1].host[0].growth is None
    assert signals[-1].host[0].age_seconds < 10


def tenants(n: int, *rows: Any) -> AgentState:
    return state(n, make_engine(detail=make_detail(tenants=rows), members=()), processes=(), started_at=0.0)


def test_tenants_are_held_against_their_quota_and_a_minute_ago() -> None:
    states = [
        tenants(n, make_tenant(held=100.0 + n, requests_total=100 + 2 * n, preempted_total=n // 10)) for n in range(121)
    ]
    last = play(states)[-1].tenants[0]

    assert last.share_ratio == pytest.approx(0.22, abs=0.01)
    assert last.share_per_minute == pytest.approx(0.06, rel=0.05)
    assert last.quota_ratio == pytest.approx(0.55, abs=0.02)
    assert last.requests_per_minute == pytest.approx(120, rel=0.05)
    assert last.preempted_per_minute == pytest.approx(6, abs=1)
    assert last.share_times is None


def test_the_median_session_is_of_those_that_ended_of_late() -> None:
    def lived(n: int) -> Any:
        return make_histogram(bounds=(60.0, 120.0, 240.0), counts=(1000, n, 0, 0), sum=1.0)

    last = play([tenants(n, make_tenant(session_lifetime_seconds=lived(n))) for n in range(0, 700, 5)])[-1].tenants[0]

    assert last.session_median_seconds == pytest.approx(90, abs=1)


def test_what_is_gone_is_forgotten() -> None:
    tracker = NodeTracker(DEFAULT)
    tracker.take(worker(0))
    tracker.take(state(1000, make_engine(engine="n", members=()), processes=(), host=None, device=None))

    assert list(tracker._engines) == [("n", True)]
    assert not tracker._allocators._allocators
