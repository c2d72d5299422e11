"""For each alert what must fire it and what must not: warm-up, long documents, restarts, saw-teeth, gaps."""

from __future__ import annotations

from collections.abc import Sequence

from exporters import catalogue as c
from tests.unit.alerts.promtool import (
    BREACH,
    MINUTES,
    Case,
    Series,
    Value,
    after,
    always,
    between,
    of,
    ramp,
    verdict,
)

E = {"engine": "m"}
G = {"gpu": "0"}
ESTIMATE = {"bound": "estimate"}
UP = Series("up", {}, always(1))
GIB = 2**30


def pair(
    alert: str, fires: Sequence[Series], quiet: dict[str, Sequence[Series]], minutes: int = MINUTES, **labels: str
) -> tuple[Case, ...]:
    """One case that fires and some that don't. ``labels`` of the alert; engine and gpu are always set."""
    told = {"engine": "none", "gpu": "none"} | labels
    return (
        Case(alert, "fires", fires, labels=told, minutes=minutes),
        *(Case(alert, name, series, fires=False, minutes=minutes) for name, series in quiet.items()),
    )


def judged(alert: str, kind: str, *also: Series, tier: str = "warn", **about: str) -> tuple[Case, ...]:
    """An alert on a verdict: it fires where it is confirmed, not where it is suspected, or only noted, or over soon."""
    told = {"engine": "m"} | {name: value for name, value in about.items() if name in ("engine", "gpu")}
    return pair(
        alert,
        [verdict(kind, tier, **about), *also],
        {
            "suspected": [verdict(kind, tier, phase="suspect", **about), *also],
            "noted": [verdict(kind, "note", **about), *also],
            "another kind": [verdict("workload_shift_of_old", tier, **about), *also],
        },
        **{name: value for name, value in told.items() if value},
    )


def tooth(low: float, high: float, period: int = 240) -> Value:
    """A saw-tooth."""
    return lambda at: low + (high - low) * (at % period) / period


def falls(at: float) -> float | None:
    """Work that a restart ends: nothing in between."""
    return None if BREACH <= at < BREACH + 120 else 0.3


KV: tuple[Case, ...] = (
    *pair(
        "KvtideBlocksOrphaned",
        [of(c.KV_ORPHANED, after(6, before=0), **E), of(c.KV_CAPACITY, 1000, **E)],
        {
            "a few": [of(c.KV_ORPHANED, after(4, before=0), **E), of(c.KV_CAPACITY, 1000, **E)],
            "gone in time": [of(c.KV_ORPHANED, between(90, 600, 1140, 0), **E), of(c.KV_CAPACITY, 1000, **E)],
            "not known": [of(c.KV_CAPACITY, 1000, **E), of(c.KV_HELD, 1000, **E)],
            "a gap begins it anew": [
                of(c.KV_ORPHANED, lambda at: None if at % 480 >= 420 else 6, **E),
                of(c.KV_CAPACITY, 1000, **E),
            ],
        },
        **E,
    ),
    *pair(
        "KvtideBlocksOrphanedMany",
        [of(c.KV_ORPHANED, after(101, before=0), **E), of(c.KV_CAPACITY, 1000, **E)],
        {
            "a tenth": [of(c.KV_ORPHANED, after(100, before=0), **E), of(c.KV_CAPACITY, 1000, **E)],
            "full and all of it known": [of(c.KV_ORPHANED, 0, **E), of(c.KV_HELD, 990, **E)],
        },
        **E,
    ),
    *judged("KvtideBlocksOverFreed", "kv_over_freed", of(c.KV_OVER_FREED, after(2, before=0), **E), tier="page"),
    Case("KvtideBlocksOverFreed", "another pool", [verdict("kv_over_freed")], labels=E | {"gpu": "none"}),
    *pair(
        "KvtideEngineStalled",
        [verdict("kv_stall"), of(c.STILL, ramp(0, 1), **E)],
        {
            "for half a minute": [verdict("kv_stall"), of(c.STILL, between(45, 600, 645, 0), **E)],
            "paused, says the detector": [of(c.STILL, ramp(0, 1), **E)],
            "one long document": [of(c.STILL, tooth(0, 40), **E)],
        },
        **E,
    ),
    *pair(
        "KvtidePoolUnderPressure",
        [verdict("kv_pressure"), of(c.KV_USE, 0.99, **E), of(c.HARM, 1, **E)],
        {
            "full and no harm": [verdict("kv_pressure"), of(c.KV_USE, 0.99, **E), of(c.HARM, 0, **E)],
            "a burst": [
                verdict("kv_pressure", value=between(1, 600, 700)),
                of(c.KV_USE, 0.99, **E),
                of(c.HARM, 1, **E),
            ],
            "a warning": [verdict("kv_pressure", "warn"), of(c.KV_USE, 0.99, **E), of(c.HARM, 1, **E)],
            "full, and serves": [of(c.KV_USE, 0.99, **E), of(c.HARM, 1, **E)],
        },
        **E,
    ),
    *pair(
        "KvtidePoolExhaustedSoon",
        (
            exhausted := [
                of(c.KV_EXHAUSTION, 300, **E, **ESTIMATE),
                of(c.KV_USE, after(0.8, before=0.2), **E),
                of(c.KV_UNEXPLAINED_GROWTH, 0.0009, **E, **ESTIMATE),
                of(c.KV_GROWTH, 0.001, **E, **ESTIMATE),
                of(c.ENGINE_START, -7200, **E),
            ]
        ),
        {
            "half empty": [*exhausted[:1], of(c.KV_USE, 0.6, **E), *exhausted[2:]],
            "a long document explains it": [
                *exhausted[:2],
                of(c.KV_UNEXPLAINED_GROWTH, 0.0001, **E, **ESTIMATE),
                *exhausted[3:],
            ],
            "in an hour": [of(c.KV_EXHAUSTION, 3600, **E, **ESTIMATE), *exhausted[1:]],
            "warm-up": [
                of(c.KV_EXHAUSTION, between(300, 0, 100), **E, **ESTIMATE),
                of(c.KV_USE, 0.8, **E),
                *exhausted[2:4],
                of(c.ENGINE_START, 0, **E),
            ],
            "teeth": [of(c.KV_EXHAUSTION, lambda at: 300 if at % 120 < 60 else None, **E, **ESTIMATE), *exhausted[1:]],
        },
        **E,
    ),
    *pair(
        "KvtideTransferKept",
        [
            of(c.DELAYED_OLDEST, ramp(0, 1), **E, peer="d", direction="send"),
            of(c.DELAYED_LEASE, 480, **E, peer="d", direction="send"),
        ],
        {
            "inside twice the lease": [
                of(c.DELAYED_OLDEST, ramp(0, 1, 900), **E, peer="d", direction="send"),
                of(c.DELAYED_LEASE, 480, **E, peer="d", direction="send"),
            ],
            "no lease": [of(c.DELAYED_OLDEST, ramp(0, 1), **E, peer="d", direction="send")],
        },
        **E,
    ),
    *pair(
        "KvtideTransfersFillPool",
        (
            filled := [
                verdict("kv_delayed_free", "warn"),
                of(c.DELAYED_BLOCKS, 700, **E, peer="d", direction="send"),
                of(c.DELAYED_EXPIRED, 0, **E, peer="d", direction="send"),
                of(c.DELAYED_LEASE, 480, **E, peer="d", direction="send"),
                of(c.KV_CAPACITY, 1000, **E),
            ]
        ),
        {
            "a few past the lease": [
                *filled[:2],
                of(c.DELAYED_EXPIRED, 7, **E, peer="d", direction="send"),
                *filled[3:],
            ],
            "a step in flight has no lease": [*filled[:3], *filled[4:]],
            "levels off": filled[1:],
        },
        **E,
    ),
    Case(
        "KvtideTransfersFillPool",
        "a tenth past the lease",
        [verdict("kv_delayed_free"), filled[1], of(c.DELAYED_EXPIRED, 200, **E, peer="d", direction="send"), filled[4]],
        labels=E | {"gpu": "none"},
    ),
    *judged("KvtideBlocksPinned", "kv_pinned", of(c.PINNED_OLDEST, 900, **E, holder="x", pool="kv")),
    *pair(
        "KvtideResidueLarge",
        [of(c.KV_RESIDUE, after(30e6, before=0), engine="m"), of(c.KV_RESIDUE, 30e6, engine="n")],
        {"little": [of(c.KV_RESIDUE, 49e6, **E)], "gone": [of(c.KV_RESIDUE, between(90e6, 600, 1100, 0), **E)]},
    ),
)

SERVING: tuple[Case, ...] = (
    *pair(
        "KvtidePreemptionThrash",
        [of(c.REBUILD, after(0.4, before=0), **E), of(c.PREEMPTIONS, 0.1, **E)],
        {
            "few preemptions": [of(c.REBUILD, 0.4, **E), of(c.PREEMPTIONS, 0.03, **E)],
            "cheap ones": [of(c.REBUILD, 0.29, **E), of(c.PREEMPTIONS, 1, **E)],
            "a restart": [of(c.REBUILD, between(0.9, 600, 840, 0), **E), of(c.PREEMPTIONS, 1, **E)],
        },
        **E,
    ),
    *pair(
        "KvtideAllocationSlow",
        [of(c.WAIT_P99, after(0.05, before=0), **E)],
        {"quick": [of(c.WAIT_P99, 0.049, **E)], "a burst": [of(c.WAIT_P99, between(2, 600, 800, 0), **E)]},
        **E,
    ),
    *pair(
        "KvtideLatencyBurn",
        (
            burning := [
                Series(f"{c.ADMISSION_WAIT.name}_bucket", E | {"le": "0.5"}, ramp(0, 0.1)),
                Series(f"{c.ADMISSION_WAIT.name}_count", E, ramp(0, 0.3)),
                Series(f"{c.PROMPT_TOKENS.name}_count", E, ramp(0, 1)),
            ]
        ),
        {
            "one in ten": [*burning[:1], Series(f"{c.ADMISSION_WAIT.name}_count", E, ramp(0, 0.2)), burning[2]],
            "few of many wait": [*burning[:2], Series(f"{c.PROMPT_TOKENS.name}_count", E, ramp(0, 10))],
            "for two minutes": [
                *burning[:1],
                Series(f"{c.ADMISSION_WAIT.name}_count", E, lambda at: 0.1 * at + min(60, max(0, at - 1200) / 2)),
                burning[2],
            ],
            "a restart": [
                Series(each.name, each.labels, lambda at, rate=rate: rate * (at if at < 1200 else at - 1200))
                for each, rate in zip(burning, (0.1, 0.1, 1), strict=True)
            ],
        },
        **E,
    ),
    *judged("KvtideEvictionStorm", "eviction_storm", of(c.REBUILD_EVICTED, 0.3, **E)),
    *judged("KvtideTenantSurge", "tenant_surge", of(c.TENANT_SHARE, 0.5, **E, tenant="t"), tenant="t"),
    *judged("KvtideWorkloadShifted", "workload_shift", of(c.CONTEXT, 9000, **E)),
)

PROCESS = {"engine": "m", "role": "worker", "rank": "0", "device": "cuda:0"}
DEVICE: tuple[Case, ...] = (
    *judged("KvtideOutOfMemory", "oom", tier="page", process="worker/0"),
    Case(
        "KvtideOutOfMemory",
        "a process of no engine",
        [verdict("oom", engine="", process="train")],
        labels={"engine": "none", "gpu": "none"},
    ),
    Case("KvtideOutOfMemory", "what only words say", [verdict("oom", "warn", process="worker/0")], fires=False),
    *pair(
        "KvtideAllocatorFragmented",
        (
            pieces := [
                of(c.ALLOCATOR_FRAGMENTATION_RATIO, 0.5, **PROCESS),
                of(c.ALLOCATOR_INACTIVE_BYTES, 2 * GIB, **PROCESS),
                of(c.ALLOCATOR_RETRIES_TOTAL, ramp(0, 0.02), **PROCESS),
            ]
        ),
        {
            "little is free": [pieces[0], of(c.ALLOCATOR_INACTIVE_BYTES, GIB / 2, **PROCESS), pieces[2]],
            "nobody had to try again": [*pieces[:2], of(c.ALLOCATOR_RETRIES_TOTAL, 7, **PROCESS)],
            "start-up": [
                of(c.ALLOCATOR_FRAGMENTATION_RATIO, between(0.9, 0, 240, 0.1), **PROCESS),
                *pieces[1:],
            ],
        },
        **E,
    ),
    *judged(
        "KvtideAllocatorGrows",
        "allocator_growth",
        of(c.ALLOCATOR_USE, 0.9, engine="m", role="worker", rank="0", gpu="0"),
        process="worker/0",
        gpu="",
    )[1:],
    Case(
        "KvtideAllocatorGrows",
        "fires",
        [
            verdict("allocator_growth", "warn", process="worker/0"),
            of(c.ALLOCATOR_USE, 0.9, engine="m", role="worker", rank="0", gpu="0"),
            of(c.ALLOCATOR_USE, 0.9, engine="m", role="worker", rank="1", gpu="1"),
        ],
        labels=E | G,
    ),
    Case(
        "KvtideAllocatorGrows",
        "a trainer",
        [
            verdict("allocator_growth", "warn", engine="", process="train"),
            of(c.ALLOCATOR_USE, 0.9, process="train", role="torch", rank="0", gpu="3"),
        ],
        labels={"engine": "none", "gpu": "3"},
    ),
    *judged("KvtideDeviceGrows", "device_growth", of(c.GPU_USE, 0.95, **G), engine="", gpu="0"),
    *pair(
        "KvtideDeviceFull",
        (
            growing := [
                of(c.GPU_USE, 0.9, **G),
                of(c.GPU_SLOW, 1e-5, **G, bound="low"),
                of(c.GPU_GROWTH, 2e-5, **G, **ESTIMATE),
            ]
        ),
        {
            "minutes do not agree": [*growing[:2], of(c.GPU_GROWTH, 1e-7, **G, **ESTIMATE)],
            "hours do not agree": [growing[0], of(c.GPU_SLOW, -1e-6, **G, bound="low"), growing[2]],
            "much is free": [of(c.GPU_USE, 0.5, **G), *growing[1:]],
            "warm-up": [of(c.GPU_USE, 0.9, **G), of(c.GPU_GROWTH, 1e-3, **G, **ESTIMATE)],
            "a pool that was preallocated": [of(c.GPU_USE, 0.97, **G), of(c.GPU_GROWTH, 0, **G, **ESTIMATE)],
        },
        **G,
    ),
    *judged("KvtideDeviceFullSoon", "device_growth", of(c.GPU_USE, 0.97, **G), tier="page", engine="", gpu="0"),
    *judged("KvtideOverBudget", "over_budget", of(c.GPU_USE, 0.99, **G), engine="", gpu="0"),
    *judged("KvtideDeadProcessMemory", "dead_process_memory", of(c.DEAD_PROCESS_MEMORY, 9e9, **G), engine="", gpu="0"),
    *judged("KvtideGpuLost", "gpu_lost", tier="page", engine="", gpu="0"),
    *judged("KvtideRanksUneven", "rank_imbalance"),
    *judged("KvtideSleepResidue", "sleep_residue"),
)

ROW = {"engine": "m", "role": "core", "rank": "0", "what": "cgroup"}
HOST: tuple[Case, ...] = (
    *judged("KvtideHostMemoryGrows", "host_growth", process="core/0"),
    *pair(
        "KvtideHostMemoryLimit",
        (
            filling := [
                of(c.HOST_LIMIT_TIME, 9000, **ROW, **ESTIMATE),
                of(c.HOST_SLOW, 1e-6, **ROW, bound="low"),
                of(c.HOST_LIMIT_USE, 0.7, **ROW),
            ]
        ),
        {
            "hours do not agree": [filling[0], of(c.HOST_SLOW, -1e-6, **ROW, bound="low"), filling[2]],
            "no hours yet": [filling[0], filling[2]],
            "far below": [*filling[:2], of(c.HOST_LIMIT_USE, 0.3, **ROW)],
            "in a day": [of(c.HOST_LIMIT_TIME, 86400, **ROW, **ESTIMATE), *filling[1:]],
            "teeth of a heap": [
                of(c.HOST_LIMIT_TIME, lambda at: 9000 if at % 600 < 300 else None, **ROW, **ESTIMATE),
                *filling[1:],
            ],
        },
        **E,
    ),
    *judged("KvtideHostMemoryFullSoon", "host_growth", tier="page", process="core/0"),
    *pair(
        "KvtideKilledForMemory",
        [UP, of(c.ENGINE_OOM_KILLS, after(1, 1680), **E)],
        {
            "the agent began before Prometheus": [
                Series("up", {}, after(1)),
                of(c.ENGINE_OOM_KILLS, after(3), **E),
            ],
            "the source failed for a while": [
                UP,
                of(c.ENGINE_OOM_KILLS, lambda at: None if 600 <= at < 1300 else 3, **E),
            ],
            "of last night": [UP, of(c.ENGINE_OOM_KILLS, 3, **E)],
            "a gap": [
                Series("up", {}, between(0, 600, 720, 1)),
                of(c.ENGINE_OOM_KILLS, lambda at: None if 600 <= at < 720 else 3, **E),
            ],
        },
        **E,
    ),
    Case(
        "KvtideKilledForMemory",
        "one more",
        [UP, of(c.ENGINE_OOM_KILLS, after(4, 1680, before=3), **E)],
        labels=E | {"gpu": "none"},
    ),
    *pair(
        "KvtideRestartLoop",
        [of(c.ENGINE_RESTARTS, after(3, before=0), **E)],
        {"two": [of(c.ENGINE_RESTARTS, 2, **E)]},
        **E,
    ),
)

FAILED = {"lever": "trim", "result": "failed"}
NODES = [Series("up", {"instance": f"n{n}:9477"}, always(1)) for n in range(10)]
ACTIONS: tuple[Case, ...] = (
    *pair("KvtideBreakerOpen", [of(c.BREAKER_OPEN, after(1, before=0))], {"closed": [of(c.BREAKER_OPEN, 0)]}),
    *pair(
        "KvtideActionsFail",
        [UP, of(c.ACTIONS, after(1, 1500), **FAILED)],
        {
            "done": [UP, of(c.ACTIONS, after(9), lever="trim", result="done")],
            "of before": [UP, of(c.ACTIONS, 9, **FAILED)],
            "the agent began anew": [UP, of(c.ACTIONS, lambda at: 9 if at < 1200 else None, **FAILED)],
        },
    ),
    Case("KvtideActionsFail", "lost", [UP, of(c.ACTIONS, after(5, 1500, 4), lever="trim", result="lost")]),
    *pair(
        "KvtideActionsBlocked",
        [of(c.ACTIONS_BLOCKED, after(1, before=0))],
        {"for ten minutes": [of(c.ACTIONS_BLOCKED, between(1, 600, 1200, 0))], "observes": [of(c.BREAKER_OPEN, 0)]},
    ),
    *pair(
        "KvtideFleetGuard",
        [
            *NODES,
            *(
                Series(c.VERDICT.name, labels | {"instance": f"n{n}:9477", "engine": "m"}, after(1))
                for n in range(3)
                for labels in [{"kind": "kv_orphan", "phase": "confirmed", "tier": "page"}]
            ),
        ],
        {
            "one node": [*NODES, Series(c.VERDICT.name, verdict("kv_orphan").labels, after(1))],
            "a small fleet": [
                *NODES[:3],
                Series(c.VERDICT.name, dict(verdict("kv_orphan").labels) | {"instance": "n0:9477"}, after(1)),
            ],
        },
        minutes=14,
    ),
    *pair(
        "KvtidePolicyRefused",
        [of(c.POLICY_LOADED, after(0, before=1))],
        {"loaded": [of(c.POLICY_LOADED, 1)], "put right": [of(c.POLICY_LOADED, between(0, 600, 800, 1))]},
    ),
    *pair(
        "KvtideEngineIsolated",
        [of(c.BALANCER_ISOLATED, after(1, before=0), **E), of(c.BALANCER_ENFORCING, 1)],
        {
            "worked out only": [of(c.BALANCER_ISOLATED, 1, **E), of(c.BALANCER_ENFORCING, 0)],
            "serves": [of(c.BALANCER_ISOLATED, 0, **E), of(c.BALANCER_ENFORCING, 1)],
        },
        **E,
    ),
)


def enforced(alert: str, series: Series, **labels: str) -> tuple[Case, ...]:
    """Only where kvtide acts, by its levers or through load balancers."""
    return (
        *pair(
            alert,
            [series, of(c.ACTIONS_MODE, 1, mode="enforce")],
            {
                "observes": [series, of(c.ACTIONS_MODE, 0, mode="enforce"), of(c.ACTIONS_MODE, 1, mode="observe")],
                "no fault": [of(c.ACTIONS_MODE, 1, mode="enforce")],
            },
            **labels,
        ),
        Case(alert, "by load balancers", [series, of(c.BALANCER_ENFORCING, 1)], labels=labels),
    )


def health(alert: str, below: float) -> tuple[Case, ...]:
    """A tier of the score, with harm; a busy engine at 60 without harm fires none."""
    score = {"scope": "engine", "engine": "m", "form": "kvtide"}
    bad, harm = of(c.HEALTH_SCORE, after(below - 1, before=90), **score), of(c.HARM, 1, **E)
    return pair(
        alert,
        [bad, harm],
        {
            "busy, and serves": [of(c.HEALTH_SCORE, 60, **score), of(c.HARM, 0, **E)],
            "at it": [of(c.HEALTH_SCORE, below, **score), harm],
            "the textbook's form": [of(c.HEALTH_SCORE, 0, **score | {"form": "textbook"}), harm],
            "of a moment": [of(c.HEALTH_SCORE, between(0, 600, 650, 90), **score), harm],
        },
        **E,
    )


AGENT: tuple[Case, ...] = (
    Case("KvtideWatchdog", "always", [UP], labels={"engine": "none", "gpu": "none"}, minutes=2),
    *pair(
        "KvtideAgentDown",
        [Series("up", {}, after(0, before=1))],
        {
            "one scrape": [Series("up", {}, between(0, 600, 660, 1))],
            "another job": [Series("up", {"job": "node"}, always(0))],
        },
    ),
    *pair("KvtideAgentsAbsent", [], {"there": [UP], "a gap": [Series("up", {}, between(0, 400, 520, 1))]}, minutes=10),
    *judged("KvtideEngineMissing", "engine_missing"),
    Case("KvtideEngineMissing", "a restart", [verdict("engine_missing", value=between(1, 600, 645))], fires=False),
    *enforced("KvtideEngineMissingEnforcing", verdict("engine_missing", "warn"), **E),
    *judged("KvtideSensorStale", "sensor_stale", engine="", source="device")[1:],
    Case("KvtideSensorStale", "fires", [verdict("sensor_stale", "warn", engine="", source="device")]),
    Case("KvtideSensorStale", "a node without GPUs", [of(c.SOURCE_UP, 0, source="device")], fires=False),
    *enforced("KvtideSensorStaleEnforcing", verdict("sensor_stale", "warn", engine="", source="device")),
    *judged("KvtideMetricImpossible", "bad_metric"),
    *judged("KvtideConfigMismatch", "config_mismatch"),
    *pair("KvtideHooksOff", [of(c.HOOKS_OFF, after(1, before=0), **E)], {"on": [of(c.HOOKS_OFF, 0, **E)]}, **E),
    *health("KvtideHealthLow", 60),
    *health("KvtideHealthSevere", 40),
    *health("KvtideHealthEmergency", 20),
)


def level(alert: str, metric: c.Metric, fires: float, quiet: float, **labels: str) -> tuple[Case, ...]:
    """A write-up's alert: a number above a number, for a while."""
    told = {name: value for name, value in labels.items() if name in ("engine", "gpu")}
    return pair(
        alert,
        [of(metric, after(fires, before=quiet), **labels)],
        {"below": [of(metric, quiet, **labels)]},
        **told,
    )


GROWS = [of(c.KV_GROWTH, after(0.1 / 60, before=0), **E, **ESTIMATE)]
TEXTBOOK: tuple[Case, ...] = (
    *level("TextbookDeviceUse", c.GPU_USE, 0.86, 0.85, **G),
    *level("TextbookDeviceUseHigh", c.GPU_USE, 0.96, 0.95, **G),
    *level("TextbookKvShare", c.GPU_KV, 0.81, 0.8, **G),
    *level("TextbookKvShareHigh", c.GPU_KV, 0.91, 0.9, **G),
    *level("TextbookGrowth", c.KV_GROWTH, 0.06 / 60, 0.05 / 60, **E, **ESTIMATE),
    *level("TextbookGrowthFast", c.KV_GROWTH, 0.09 / 60, 0.079 / 60, **E, **ESTIMATE),
    *pair(
        "TextbookAcceleration",
        [of(c.KV_ACCELERATION, 1e-6, **E), *GROWS],
        {"slows down": [of(c.KV_ACCELERATION, -1e-6, **E), *GROWS], "level": [of(c.KV_ACCELERATION, 1e-6, **E)]},
        **E,
    ),
    *pair(
        "TextbookGrowthDoubles",
        [of(c.KV_DOUBLING, 60, **E), *GROWS],
        {"slowly": [of(c.KV_DOUBLING, 600, **E), *GROWS]},
        **E,
    ),
    *level("TextbookKvBytes", c.KV_HELD_BYTES, 9e9, 7e9, **E),
    *level("TextbookKvBytesHigh", c.KV_HELD_BYTES, 13e9, 11e9, **E),
    *level("TextbookQueue", c.REQUESTS_WAITING, 51, 50, **E),
    *level("TextbookQueueLong", c.REQUESTS_WAITING, 101, 100, **E),
    *level("TextbookSessionLong", c.TENANT_SESSION, 121, 120, **E, tenant="t"),
    *level("TextbookSessionVeryLong", c.TENANT_SESSION, 601, 600, **E, tenant="t"),
    *pair(
        "TextbookSawTooth",
        [of(c.KV_AMPLITUDE, 0.4, **E), of(c.KV_FLOOR, 0.5, **E)],
        {"a low floor": [of(c.KV_AMPLITUDE, 0.4, **E), of(c.KV_FLOOR, 0.3, **E)]},
        **E,
    ),
)

CASES: tuple[Case, ...] = (*KV, *SERVING, *DEVICE, *HOST, *ACTIONS, *AGENT, *TEXTBOOK)


def healthy(name: str, use: Value, *also: Series) -> tuple[str, tuple[Series, ...]]:
    """A sound engine at work, whose pool is used so."""
    return name, (
        UP,
        of(c.KV_USE, use, **E),
        of(c.KV_HELD, lambda at: None if (found := use(at)) is None else 1000 * found, **E),
        of(c.KV_CAPACITY, 1000, **E),
        of(c.KV_ORPHANED, 0, **E),
        of(c.KV_OVER_FREED, 0, **E),
        of(c.HEALTH_SCORE, 60, scope="engine", engine="m", form="kvtide"),
        of(c.BREAKER_OPEN, 0),
        of(c.POLICY_LOADED, 1),
        *also,
    )


# Nothing but the watchdog may fire on these.
HEALTHY = (
    healthy(
        "warm-up",
        ramp(0, 0.002, 0.95),
        of(c.KV_GROWTH, 0.002, **E, **ESTIMATE),
        of(c.KV_UNEXPLAINED_GROWTH, between(0.002, 0, 100), **E, **ESTIMATE),
        of(c.KV_EXHAUSTION, between(300, 0, 480), **E, **ESTIMATE),
        of(c.ENGINE_START, 0, **E),
        of(c.GPU_USE, 0.92, **G),
        of(c.GPU_GROWTH, between(0.01, 0, 120, 0), **G, **ESTIMATE),
    ),
    healthy(
        "a long document",
        ramp(0.3, 0.0004, 0.99),
        of(c.KV_GROWTH, 0.0004, **E, **ESTIMATE),
        of(c.KV_UNEXPLAINED_GROWTH, 0, **E, **ESTIMATE),
        of(c.KV_EXHAUSTION, 200, **E, **ESTIMATE),
        of(c.CONTEXT, 60000, **E),
        of(c.HARM, 0, **E),
    ),
    healthy(
        "a restart",
        falls,
        of(c.ENGINE_RESTARTS, after(1, before=0), **E),
        verdict("engine_missing", "note", between(1, 600, 720)),
        of(c.ACTIONS, lambda at: 4 if at < 600 else None, lever="trim", result="failed"),
    ),
    healthy(
        "a saw-tooth",
        tooth(0.45, 0.95),
        of(c.KV_AMPLITUDE, 0.5, **E),
        of(c.KV_FLOOR, 0.2, **E),
        of(c.KV_EXHAUSTION, tooth(600, 30), **E, **ESTIMATE),
        of(c.KV_GROWTH, 0.002, **E, **ESTIMATE),
        of(c.KV_UNEXPLAINED_GROWTH, 0.0001, **E, **ESTIMATE),
    ),
    healthy(
        "gaps of a source",
        lambda at: None if at % 600 >= 500 else 0.97,
        of(c.ENGINE_OOM_KILLS, lambda at: None if at % 600 >= 500 else 2, **E),
        of(c.ALLOCATOR_RETRIES_TOTAL, lambda at: None if at % 600 >= 500 else 40, **PROCESS),
    ),
    healthy(
        "full, and serves",
        always(0.995),
        of(c.HARM, 0, **E),
        of(c.REQUESTS_WAITING, 40, **E),
        of(c.REBUILD, 0.05, **E),
        of(c.PREEMPTIONS, 0.02, **E),
        of(c.GPU_USE, 0.93, **G),
        of(c.GPU_KV, 0.7, **G),
    ),
)
