"""Judgements with values that a test can know by heart; each builder takes what it should say instead."""

from __future__ import annotations

from typing import Any

from agent.balancer.state import BalancerState, EngineWeight, Weight
from agent.recorder.state import RecorderState
from agent.signals.types import (
    AllocatorSignals,
    EngineSignals,
    Forecast,
    GpuSignals,
    HostSignals,
    NodeSignals,
    Rate,
    Score,
    Slow,
    TenantSignals,
)
from agent.state import Judgement, Verdict
from agent.subject import Subject

MIB = 1024 * 1024


def make_rate(per_minute: float = 0.03) -> Rate:
    """A third of it to either side, over five minutes."""
    return Rate(per_minute=per_minute, low=per_minute * 2 / 3, high=per_minute * 4 / 3, seconds=300.0, samples=60)


def make_slow(per_hour: float = 0.018, **changes: Any) -> Slow:
    """What came stayed, and both windows rise."""
    values: dict[str, Any] = {
        "per_hour": per_hour,
        "low": per_hour / 2,
        "high": per_hour * 2,
        "later_per_hour": per_hour,
        "seconds": 14_400.0,
        "retained_ratio": 0.07,
        "leaks": True,
        "staircase": 4,
    }
    return Slow(**values | changes)


def make_forecast(**changes: Any) -> Forecast:
    """Full in four minutes, three to six."""
    values: dict[str, Any] = {"seconds": 240.0, "low": 180.0, "high": 360.0, "condition": "if it goes on like this"}
    return Forecast(**values | changes)


def make_engine_signals(**changes: Any) -> EngineSignals:
    """Everything that can be said of engine m; values that are all different."""
    values: dict[str, Any] = {
        "engine": "m",
        "instance": "i1",
        "hooked": True,
        "age_seconds": 1000.0,
        "settled": True,
        "use_ratio": 0.75,
        "growth": make_rate(),
        "unexplained": make_rate(0.006),
        "acceleration": 0.0036,
        "doubling_seconds": 500.0,
        "exhaustion": make_forecast(),
        "slow": make_slow(),
        "slow_unexplained": make_slow(0.0036),
        "floor_ratio": 0.41,
        "amplitude_ratio": 0.31,
        "period_seconds": 190.0,
        "idle_floor_ratio": 0.05,
        "idle_floor_seconds": 60.0,
        "tail_waste_ratio": 0.08,
        "blocks_per_running": 37.5,
        "bytes_per_generated_token": 65_536.0,
        "preempted_per_minute": 6.0,
        "refused_per_minute": 12.0,
        "harm": True,
        "rebuild_ratio": 0.16,
        "rebuild_cost_ratio": 0.12,
        "rebuild_evicted_ratio": 0.11,
        "prefix_hit_ratio": 0.26,
        "prefix_hit_times": 0.9,
        "latency_p99_seconds": 0.055,
        "take_p99_seconds": 0.001,
        "queue": 3,
        "failed_ratio": 0.02,
        "still_seconds": 0.5,
        "tokens_per_second": 800.0,
        "tokens_per_running": 100.0,
        "taken_per_minute": 600.0,
        "given_back_per_minute": 540.0,
        "request_p99_seconds": 12.0,
        "request_p99_times": 1.6,
        "context_mean_tokens": 1500.0,
        "context_times": 2.5,
        "long_tail_ratio": 0.07,
        "long_tail_times": 1.4,
        "interruption_ratio": 0.04,
        "residue_bytes": 9 * MIB,
    }
    return EngineSignals(**values | changes)


def make_signals(**changes: Any) -> NodeSignals:
    """One of each kind."""
    tenant = TenantSignals(
        engine="m",
        tenant="acme",
        share_ratio=0.4,
        share_per_minute=0.012,
        share_times=2.2,
        quota_ratio=0.85,
        requests_per_minute=90.0,
        requests_times=3.0,
        preempted_per_minute=3.0,
        waiting=2,
        session_median_seconds=130.0,
        session_times=1.3,
    )
    allocator = AllocatorSignals(
        engine="m",
        process="",
        role="worker",
        rank=1,
        pid=4322,
        gpu="0",
        slack_bytes=240 * MIB,
        allocated_ratio=0.6,
        growth=make_rate(),
        slow=make_slow(),
        retries_per_minute=1.2,
    )
    gpu = GpuSignals(
        gpu="0",
        use_ratio=0.76,
        kv_share_ratio=0.5,
        growth=make_rate(0.0012),
        slow=make_slow(),
        other_bytes=1000 * MIB,
        other_growth=make_rate(0.0018),
        other_slow=make_slow(0.0072),
        foreign_bytes=1024 * MIB,
        foreign_growth=make_rate(0.0024),
        up_seconds=900.0,
    )
    host = HostSignals(
        engine="m",
        role="core",
        rank=0,
        what="cgroup",
        bytes=6000 * MIB,
        growth=make_rate(0.012),
        slow=make_slow(),
        limit_bytes=8000 * MIB,
        limit_ratio=0.875,
        limit_seconds=make_forecast(seconds=1500.0, low=1200.0, high=None),
    )
    values: dict[str, Any] = {
        "engines": (make_engine_signals(),),
        "tenants": (tenant,),
        "allocators": (allocator,),
        "gpus": (gpu,),
        "host": (host,),
    }
    return NodeSignals(**values | changes)


def make_found(**changes: Any) -> Verdict:
    """A GPU that is lost, confirmed a minute ago, for which somebody gets up."""
    values: dict[str, Any] = {
        "kind": "gpu_lost",
        "phase": "confirmed",
        "since": 1_700_000_930.0,
        "changed": 1_700_000_940.0,
        "sentence": "GPU 1 is gone.",
        "remedy": "Drain this node.",
        "evidence": {"lost_seconds": 70.0},
        "subject": Subject(scope="gpu", gpu="1"),
        "tier": "page",
    }
    return Verdict(**values | changes)


def make_score(**changes: Any) -> Score:
    """Engine m, between warning and severe."""
    values: dict[str, Any] = {"scope": "engine", "engine": "m", "gpu": "", "form": "kvtide", "value": 55.0}
    return Score(**values | changes)


def make_judgement(*verdicts: Verdict, **changes: Any) -> Judgement:
    """Everything that can be made of a state. ``verdicts`` come after those on its engines."""
    values: dict[str, Any] = {
        "at": 1_700_000_999.0,
        "signals": make_signals(),
        "verdicts": verdicts or (make_found(),),
        "scores": (make_score(), make_score(scope="kv", value=55.0), make_score(form="textbook", value=31.0)),
    }
    return Judgement(**values | changes)


def make_recorder(**changes: Any) -> RecorderState:
    """Half an hour is kept, and one incident."""
    values: dict[str, Any] = {
        "directory": "/var/lib/kvtide",
        "recording": True,
        "reason": "",
        "states_total": 1800,
        "dropped_total": 2,
        "torn_total": 1,
        "bytes": 9 * MIB,
        "max_bytes": 512 * MIB,
        "bundles": 1,
        "bundles_total": 3,
        "last_bundle": "/var/lib/kvtide/bundles/20231114T222300Z-gpu-lost-gpu-1.kvtide",
    }
    return RecorderState(**values | changes)


def make_balancer(**changes: Any) -> BalancerState:
    """Engine m leaks and gets half of its share; m2 is isolated. Ten engines are counted."""
    half = Weight(percent=50, since=1_700_000_930.0, why="it leaks", step="halved")
    out = Weight(percent=0, mode="drain", since=1_700_000_940.0, why="it leaks much", step="isolated")
    values: dict[str, Any] = {
        "mode": "enforce",
        "coordinator": "file",
        "engines": (EngineWeight(engine="m", told=half, found=half), EngineWeight(engine="m2", told=out, found=out)),
        "fleet": 10,
        "ejected": 2,
        "refused_total": 3,
        "failed_total": 1,
        "problem": "",
    }
    return BalancerState(**values | changes)
