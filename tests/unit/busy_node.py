"""A node of eight GPUs, eight engines and fifty tenants under load: how many series it makes is stated and tested.

The first engine and its GPU have everything at once that can be told of one, faults and all; the other seven are busy
and well. All have been up for hours, so that every signal over hours is known.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from agent.signals.types import NodeSignals, Score, TenantSignals
from agent.sources.device.state import GpuState
from agent.sources.host.state import HostState
from agent.state import AgentState, EngineState, MemberState
from agent.waterfall.state import Waterfall
from engine_hooks.core.allocation import WAIT_SECONDS
from engine_hooks.core.buckets import BLOCK_SECONDS, PROMPT_TOKENS, REQUEST_SECONDS
from engine_hooks.detail import Detail, Histogram, TenantRow
from tests.unit.allocators import make_allocator, make_allocator_state, make_device, make_segments, make_walk
from tests.unit.builders import make_engine, make_frontend, make_hooks, make_pool, make_state, make_verdict, make_worker
from tests.unit.details import make_allocation, make_detail, make_group, make_tenant, make_waiting, make_work
from tests.unit.judgements import (
    make_engine_signals,
    make_found,
    make_judgement,
    make_score,
    make_signals,
    make_slow,
)
from tests.unit.node_builders import MIB, make_cgroup, make_devices, make_gpu, make_host, make_process, make_waterfall

SIZE, TENANTS, WITH_QUOTA = 8, 50, 10
ROLES = ("core", "frontend")
CGROUP_PARTS = ("anon", "file", "shmem", "unevictable", "kernel", "slab", "sock", "file_dirty", "inactive_file")
_HAS_NOT = ("draft_model", "lora", "encoder_cache", "kv_unsplit", "untold")  # no engine but the first


def busy_node() -> AgentState:
    """Return the state."""
    return make_state(
        *(_engine(number) for number in range(SIZE)),
        device=make_devices(*(_gpu(number) for number in range(SIZE))),
        host=_host(),
        waterfalls=tuple(_waterfall(number) for number in range(SIZE)),
        judgement=make_judgement(
            make_verdict(subject=replace(make_verdict().subject, engine="m0")),
            make_found(held=True),
            signals=_signals(),
            scores=tuple(_scores()),
        ),
    )


def histogram(bounds: tuple[float, ...]) -> Histogram:
    """Return one with a value in each bucket."""
    return Histogram(bounds=bounds, counts=(1,) * (len(bounds) + 1), sum=1.0)


def tenants_of(number: int) -> list[str]:
    """Return the tenants of an engine: each is at home on one."""
    return [f"t{each}" for each in range(TENANTS) if each % SIZE == number]


def _names_sessions(tenant: str) -> bool:
    return int(tenant[1:]) % 2 == 0  # a client has to send a header for that


def _tenant(name: str) -> TenantRow:
    paying = int(name[1:]) < WITH_QUOTA  # those with a quota are those who meet it
    return make_tenant(
        tenant=name,
        waiting=2 if paying else 0,
        preempted_total=3 if paying else 0,
        ended_total={"finished": 980} | ({"aborted_front_end": 13} if int(name[1:]) % 2 else {}),
        quota_blocks=400 if paying else None,
        sessions=17 if _names_sessions(name) else 0,
        session_lifetime_seconds=histogram(REQUEST_SECONDS),
        session_idle_seconds=histogram(REQUEST_SECONDS),
    )


def _detail(number: int) -> Detail:
    rows: dict[str, Any] = {
        "tenants": tuple(map(_tenant, tenants_of(number))),
        "allocation": make_allocation(block_seconds=histogram(BLOCK_SECONDS), wait_seconds=histogram(WAIT_SECONDS)),
        "work": make_work(request_seconds=histogram(REQUEST_SECONDS), prompt_tokens=histogram(PROMPT_TOKENS)),
    }
    if number == 0:
        return make_detail(**rows)
    rows["allocation"] = replace(
        rows["allocation"],
        consecutive_refusals=0,
        most_retries=0,
        over_three_retries_total=0,
        waiting_refused=0,
        oldest_refused_seconds=None,
    )
    nothing = {"transfer_id": "", "leaks": (), "delayed": (), "pins": (), "pools": ()}
    lacking = {"speculation": None, "encoder": None, "tiers": None}
    rows["work"] = replace(rows["work"], steepest_slope=None)
    waiting = make_waiting(reasons={"memory": 2}, idle_steps=0, stalled_seconds=None, stalled_by="", unseen=0)
    return make_detail(**rows, **nothing, **lacking, groups=(make_group(),), waiting=waiting)


def _worker(number: int) -> MemberState:
    if number == 0:
        rows = make_walk(devices=(make_segments(expandable_bytes=10 * MIB),))
        return make_worker(rank=0, allocator=replace(make_allocator_state(), row=make_allocator(walk=rows)))
    segments = make_segments(private=make_segments().private[:1])  # a CUDA graph's: without sleep mode
    row = make_allocator(devices=(make_device(ooms_total=0),), walk=make_walk(devices=(segments,)), tags=())
    return make_worker(rank=0, allocator=replace(make_allocator_state(), row=row))


def _engine(number: int) -> EngineState:
    well = {"orphaned": 0, "over_freed": 0, "ledger_drift": 0, "delayed": 0, "deferred": 0, "pinned": 0}
    return make_engine(
        engine=f"m{number}",
        engine_id=f"e{number}",
        pool=make_pool(**well if number else {}),
        hooks=make_hooks(**{"errors": {}, "off": {}, "dropped_frames": 0} if number else {}),
        detail=_detail(number),
        members=(_worker(number), make_frontend()),
        verdicts=(make_verdict(),) if number == 0 else (),
    )


def _gpu(number: int) -> GpuState:
    rows = make_gpu("0").remapped_rows
    assert rows is not None
    if number == 0:
        ill = {"mig": True, "unified": True, "remapped_rows": replace(rows, failed=True)}
        return make_gpu("0", unavailable={"bar1": "the driver hangs"}, **ill)
    return make_gpu(
        str(number),
        xids=(),
        mig=False,
        remapped_rows=replace(rows, corrected=0, uncorrected=0, pending=False),
        retired_pages=None,
    )


def _waterfall(number: int) -> Waterfall:
    fall = make_waterfall()
    parts = [replace(part, owner=f"m{number}" if part.owner == "m" else part.owner) for part in fall.parts]
    if number:
        parts = [part for part in parts if part.owner in (f"m{number}", "") and part.part not in _HAS_NOT]
    return replace(fall, gpu=str(number), parts=tuple(parts))


def _host() -> HostState:
    names = [f"m{number}" for number in range(SIZE)]
    parts = dict.fromkeys(CGROUP_PARTS, 100 * MIB)
    cgroups = [make_cgroup(engine=name, parts=parts) for name in names]
    calm = cgroups[0].pressure
    assert calm is not None
    calm = replace(calm, some_ratio=0.0, full_ratio=0.0)
    return make_host(
        processes=tuple(
            make_process(engine=name, role=role, **{"swap_bytes": 0, "pinned_bytes": 0} if name != "m0" else {})
            for name in names[:-1]  # those of the last are in a place that the agent does not see
            for role in ROLES
        ),
        cgroups=tuple(
            each
            if each.engine == "m0"
            else replace(each, pressure=calm, swap_bytes=0, high_bytes=None, events=dict.fromkeys(each.events or {}, 0))
            for each in cgroups
        ),
    )


def _tenant_signals(engine: str, name: str) -> TenantSignals:
    values: dict[str, Any] = {"quota_ratio": 0.8 if int(name[1:]) < WITH_QUOTA else None}
    if not _names_sessions(name):
        values["session_median_seconds"] = None
    return replace(make_signals().tenants[0], engine=engine, tenant=name, **values)


def _signals() -> NodeSignals:
    one = make_signals()
    still = {"doubling_seconds": None, "floor_ratio": None, "amplitude_ratio": None, "period_seconds": None}
    still |= {"idle_floor_ratio": None, "interruption_ratio": None, "exhaustion": None}
    engines = [
        make_engine_signals(engine=f"m{number}", slow=make_slow(leaks=not number), **still if number else {})
        for number in range(SIZE)
    ]
    process = replace(one.host[0], what="process", limit_bytes=None, limit_ratio=None, limit_seconds=None)
    host = [
        each
        for number in range(SIZE)
        for each in (
            replace(one.host[0], engine=f"m{number}", **{"limit_seconds": None} if number else {}),
            *(replace(process, engine=f"m{number}", role=role) for role in ROLES),
        )
    ]
    return NodeSignals(
        engines=tuple(engines),
        tenants=tuple(_tenant_signals(f"m{number}", name) for number in range(SIZE) for name in tenants_of(number)),
        allocators=tuple(
            replace(one.allocators[0], engine=f"m{number}", rank=0, gpu=str(number)) for number in range(SIZE)
        ),
        gpus=tuple(replace(one.gpus[0], gpu=str(number)) for number in range(SIZE)),
        host=tuple(host),
    )


def _scores() -> list[Score]:
    scores = [make_score(scope="host", engine="")]
    for number in range(SIZE):
        about = {"engine": f"m{number}", "gpu": str(number)}
        scores += [make_score(scope="kv", engine=about["engine"])]
        scores += [make_score(scope="engine", form=form, **about) for form in ("kvtide", "textbook")]
        scores += [
            make_score(scope="device", form=form, gpu=about["gpu"], engine="") for form in ("kvtide", "textbook")
        ]
    return scores
