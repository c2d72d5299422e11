"""Nodes as the views of ``kvtide top`` see them: the usual small one, none, a full one, and one with hostile names."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from agent.signals.types import NodeSignals, TenantSignals
from agent.sources.device.state import DevicesState, GpuMemory, GpuState, Utilisation
from agent.state import AgentState, EngineState
from agent.subject import Subject
from agent.top.history import History, moment_of
from agent.top.seen import Seen
from tests.unit.builders import MIB, make_engine, make_pool, make_state, make_verdict
from tests.unit.details import make_delayed, make_detail, make_leak, make_pin, make_tenant
from tests.unit.judgements import make_engine_signals, make_judgement, make_rate, make_score
from tests.unit.node_builders import make_host, make_waterfall

GIB = 1 << 30
SOURCE = "http://127.0.0.1:9477"
EVIL = ("[red]", "[/bold]x", "a\x1b[2Jb\x07c", "e\u202evil", "n" * 300, "宽" * 40, "x\ny", "", "\ud800")


def small(**changes: Any) -> AgentState:
    """One live engine with a leak, one silent, one without hooks, two GPUs."""
    return make_state(**changes)


def nothing(**changes: Any) -> AgentState:
    """An agent that sees nobody."""
    empty: dict[str, Any] = dict.fromkeys(("device", "host", "driver_calls", "scrape", "actions", "balancer"))
    values = {"processes": (), "failures": (), "failure_counts": (), "waterfalls": (), "judge_errors": {}}
    judgement = make_judgement(signals=NodeSignals(), scores=())
    state = make_state(**empty | values | {"judgement": replace(judgement, verdicts=()), "sources": ()} | changes)
    return replace(state, engines=())


def full(tenants: int = 50, engines: int = 8) -> AgentState:
    """Eight GPUs, as many engines, and so many tenants in each."""
    made = [_engine(number, tenants) for number in range(engines)]
    gpus = tuple(_gpu(number) for number in range(engines))
    verdicts = [
        make_verdict(kind=kind, tier=tier, subject=Subject(scope="engine", engine=f"engine-{number}"), sentence=text)
        for number, (kind, tier, text) in enumerate(
            (
                ("kv_orphan", "page", "412 KV blocks are held by no request (412.0 MiB, 2.1% of the pool): leaked."),
                ("preemption_thrash", "page", "31 requests a minute are preempted, 22% of prefill is computed again."),
                ("kv_pressure", "warn", "The pool is short: 97% is held, and 12 requests wait for blocks."),
                ("tenant_surge", "warn", "Tenant acme takes 41% of the pool, 3.1 times its usual share."),
            )
        )
    ]
    signals = NodeSignals(
        engines=tuple(
            make_engine_signals(engine=f"engine-{number}", instance=f"i{number}", growth=make_rate(0.01 * (number - 3)))
            for number in range(engines)
        ),
        tenants=tuple(
            TenantSignals(
                engine=f"engine-{number}",
                tenant=f"tenant-{one}",
                share_ratio=0.01 * (one % 7),
                share_per_minute=0.001 * (one % 5 - 2),
                quota_ratio=0.02 * one,
                requests_per_minute=3.0 * one,
                session_median_seconds=10.0 * one,
            )
            for number in range(engines)
            for one in range(tenants)
        ),
    )
    scores = tuple(make_score(engine=f"engine-{number}", value=95.0 - 10 * number) for number in range(engines))
    return make_state(
        *made,
        device=DevicesState(driver="580.65", cuda_driver="13.0", gpus=gpus),
        waterfalls=tuple(make_waterfall(gpu=str(number), uuid=f"GPU-{number}") for number in range(engines)),
        scrape=None,
        host=make_host(processes=(), cgroups=(), restarts=(), killed=(), dead=None, children=()),
        judgement=make_judgement(*verdicts, signals=signals, scores=scores),
        judge_errors={},
        failures=(),
        processes=(),
        driver_calls=None,
    )


def _engine(number: int, tenants: int) -> EngineState:
    held = 1000 + 2400 * number
    rows = tuple(
        make_tenant(
            tenant=f"tenant-{one}",
            held=float(10 + (one * 37) % 300),
            quota_blocks=None if one % 3 == 0 else 320,
            running=one % 4,
            waiting=one % 3,
            sessions=one,
        )
        for one in range(tenants)
    )
    leaks = tuple(
        make_leak(tenant=f"tenant-{one}", request=f"r{one:011x}", blocks=1 + one, age_seconds=7.0 * 6**one)
        for one in range(5)
    )
    return make_engine(
        engine=f"engine-{number}",
        instance=f"i{number}",
        pid=4000 + number,
        pool=make_pool(
            capacity=20_000, held=held, cached_idle=(20_000 - held) // 2, empty=(20_000 - held + 1) // 2, orphaned=15
        ),
        running=8 + number,
        waiting=3 * number,
        detail=make_detail(
            tenants=rows,
            leaks=leaks,
            delayed=(make_delayed(), make_delayed(peer="10.0.0.8:5600", blocks=9, oldest_seconds=700.0, expired=4)),
            pins=(make_pin(), make_pin(holder="unknown", known=False, oldest_seconds=None, references=7)),
        ),
    )


def _gpu(number: int) -> GpuState:
    used = (40 + 5 * number) * GIB
    return GpuState(
        gpu=str(number),
        uuid=f"GPU-{number}",
        name="NVIDIA H100 80GB HBM3",
        index=number,
        memory=GpuMemory(total=80 * GIB, used=used, free=80 * GIB - used - 600 * MIB, reserved=600 * MIB),
        utilisation=Utilisation(gpu=0.1 * number, memory=0.3),
    )


def hostile(name: str) -> AgentState:
    """Everything that has a name has this one."""
    detail = make_detail(
        tenants=(make_tenant(tenant=name),),
        leaks=(make_leak(tenant=name, request=name, ending=name),),
        delayed=(make_delayed(peer=name, tenants={name: 3}),),
        pins=(make_pin(holder=name),),
        unsupported={"tiers": name},
    )
    about = Subject(scope="tenant", engine=name, tenant=name)
    verdict = make_verdict(subject=about, sentence=f"{name} grows.", remedy=name, ending="")
    scored = make_score(engine=name)
    told = make_judgement(
        verdict, signals=NodeSignals(engines=(make_engine_signals(engine=name, no_forecast=name),)), scores=(scored,)
    )
    return make_state(make_engine(engine=name, detail=detail, engine_version=name), judgement=told, version=name)


def seen_of(state: AgentState, *earlier: AgentState, **changes: Any) -> Seen:
    """The state as it is seen after others."""
    history = History(moment_of(each) for each in (*earlier, state))
    values: dict[str, Any] = {"source": SOURCE, "state": state, "history": history, "age_seconds": 0.4}
    return Seen(**values | changes)


def rising(state: AgentState, moments: int = 60) -> list[AgentState]:
    """What came before ``state``, second by second: the pool of its first engine has filled from nothing."""
    engine = state.engines[0]
    pool = engine.pool
    assert pool is not None
    found = []
    for number in range(moments):
        left = moments - number
        now = replace(engine, pool=replace(pool, held=pool.held * number // moments))
        at = {"at": state.at - left, "monotonic": state.monotonic - left}
        found.append(replace(state, engines=(now, *state.engines[1:]), **at))
    return found
