"""Messages and states with values that a test can know by heart; each builder takes what it should say instead."""

from __future__ import annotations

from typing import Any

from agent.actions.types import Action, ActionCount, ActionsState, BreakerState, Expectation, Plan
from agent.oom.log import FailureCount
from agent.policy.state import PolicyState
from agent.state import AgentState, EngineState, HookState, LinkState, MemberState, PoolState, Verdict
from agent.subject import Subject
from agent.web.state import REASONS, HttpState
from engine_hooks.members import FrontendRow, WorkerRow
from engine_hooks.own_memory import OwnMemoryRow
from engine_hooks.wire import Hello, HookReport, PoolInfo, PoolReport, Report, Support
from tests.unit.allocators import make_allocator_state, make_failure
from tests.unit.details import make_detail
from tests.unit.judgements import make_balancer, make_found, make_judgement, make_recorder
from tests.unit.node_builders import (
    make_devices,
    make_driver_calls,
    make_host,
    make_scraped,
    make_source,
    make_waterfall,
)

MIB = 1024 * 1024


def make_hello(**changes: Any) -> Hello:
    """A data-parallel size of one, a period of one second, blocks of 1 MiB."""
    values: dict[str, Any] = {
        "name": "m",
        "instance": "i1",
        "engine_id": "e1",
        "host": "node",
        "pid": 7,
        "pid_namespace": 4026531836,
        "index": 0,
        "rank": 0,
        "data_parallel_size": 1,
        "started_at": 1_700_000_000.0,
        "engine_version": "0.11.0",
        "hooks_version": "0.1.0",
        "in_process": False,
        "idle_period_seconds": 1.0,
        "pool": PoolInfo(capacity=1000, block_tokens=16, block_bytes=MIB),
        "audit": Support(ok=True),
        "mac": b"",
    }
    return Hello(**values | changes)


def make_pool_report(**changes: Any) -> PoolReport:
    """1000 blocks: 300 held, 200 cached idle, so 500 empty."""
    values: dict[str, Any] = {
        "capacity": 1000,
        "held": 300,
        "held_min": 290,
        "held_max": 310,
        "cached_idle": 200,
        "cached_idle_age_seconds": 0.5,
        "orphaned": 0,
        "over_freed": 0,
        "exact": True,
        "audits": 12,
        "ledger_drift": 0,
    }
    return PoolReport(**values | changes)


def make_report(pool: PoolReport | None = None, **changes: Any) -> Report:
    """A report of a pool without a leak; ``pool=None`` builds that pool, too."""
    values: dict[str, Any] = {
        "sequence": 1,
        "monotonic": 50.0,
        "steps": 5000,
        "running": 8,
        "waiting": 3,
        "requests": 11,
        "pool": make_pool_report() if pool is None else pool,
        "hooks": HookReport(errors={}, off={}, dropped_frames=0, hook_seconds=0.25, step_seconds=100.0),
    }
    return Report(**values | changes)


def make_pool(**changes: Any) -> PoolState:
    """1000 blocks of 1 MiB: 300 held, of them 4 orphaned, 200 cached idle, 500 empty."""
    values: dict[str, Any] = {
        "capacity": 1000,
        "held": 300,
        "held_min": 290,
        "held_max": 310,
        "cached_idle": 200,
        "empty": 500,
        "orphaned": 4,
        "over_freed": 1,
        "exact": True,
        "audits": 12,
        "ledger_drift": 2,
        "block_tokens": 16,
        "block_bytes": MIB,
        "delayed": 40,
        "deferred": 7,
        "pinned": 24,
    }
    return PoolState(**values | changes)


def make_hooks(**changes: Any) -> HookState:
    """One hook that raised twice and one that is off."""
    values: dict[str, Any] = {
        "errors": {"audit": 2, "step": 5},
        "off": {"step": "ValueError: boom"},
        "dropped_frames": 6,
        "hook_seconds": 0.25,
        "step_seconds": 100.0,
    }
    return HookState(**values | changes)


def make_verdict(**changes: Any) -> Verdict:
    """A confirmed leak of four blocks, 30 s old in :func:`make_state`'s time."""
    values: dict[str, Any] = {
        "kind": "kv_orphan",
        "phase": "confirmed",
        "since": 1_700_000_970.0,
        "changed": 1_700_000_973.0,
        "sentence": "4 KV blocks are held by no request (4.0 MiB, 0.4% of the pool): leaked.",
        "remedy": "They come back only when the engine restarts.",
        "evidence": {"orphaned_blocks": 4.0},
        "subject": Subject(scope="engine", engine="m"),
    }
    return Verdict(**values | changes)


def make_worker(**changes: Any) -> MemberState:
    """Rank 1 of a tensor-parallel engine."""
    row = WorkerRow(
        tensor_parallel_rank=1,
        pipeline_parallel_rank=0,
        device="cuda:0",
        device_uuid="GPU-1",
        kv_bytes=1001 * MIB,
        kv_blocks=1001,
        parameter_bytes=2000 * MIB,
        draft_bytes=100 * MIB,
        lora_bytes=50 * MIB,
        encoder_cache_bytes=25 * MIB,
    )
    values: dict[str, Any] = {
        "role": "worker",
        "rank": 1,
        "pid": 4322,
        "own_pid": 22,
        "pid_namespace": 4026531836,
        "host": "node",
        "started_at": 1_700_000_000.0,
        "up": True,
        "link_up": True,
        "heard_age_seconds": 0.5,
        "resident_bytes": 3000 * MIB,
        "worker": row,
        "frontend": None,
        "allocator": make_allocator_state(),
        "memory": OwnMemoryRow(resident_bytes=3000 * MIB, cgroup_bytes=5000 * MIB, cgroup_limit_bytes=8000 * MIB),
    }
    return MemberState(**values | changes)


def make_frontend(**changes: Any) -> MemberState:
    """The only API server, with five requests in flight."""
    row = FrontendRow(count=1, requests=5)
    values: dict[str, Any] = {"role": "frontend", "rank": 0, "pid": 4320, "worker": None, "frontend": row}
    values["allocator"] = None
    return make_worker(**values | {"resident_bytes": 700 * MIB} | changes)


def make_torch_process(**changes: Any) -> MemberState:
    """A PyTorch process that belongs to no engine."""
    values: dict[str, Any] = {"role": "torch", "rank": 0, "pid": 4330, "process": "train", "worker": None}
    return make_worker(**values | changes)


def make_engine(**changes: Any) -> EngineState:
    """A live engine that says everything there is to say."""
    values: dict[str, Any] = {
        "engine": "m",
        "engine_id": "e1",
        "instance": "i1",
        "host": "node",
        "pid": 4321,
        "index": 0,
        "rank": 0,
        "started_at": 1_700_000_000.0,
        "engine_version": "0.11.0",
        "hooks_version": "0.1.0",
        "phase": "live",
        "reason": "",
        "link_up": True,
        "report_age_seconds": 0.4,
        "report_sequence": 21,
        "steps": 5000,
        "running": 8,
        "waiting": 3,
        "pool": make_pool(),
        "audit_supported": True,
        "audit_reason": "",
        "hooks": make_hooks(),
        "verdicts": (make_verdict(),),
        "detail": make_detail(),
        "workers_expected": 2,
        "frontends_expected": 1,
        "members": (make_worker(), make_frontend()),
        "memory": OwnMemoryRow(resident_bytes=900 * MIB, cgroup_bytes=5000 * MIB, cgroup_limit_bytes=8000 * MIB),
    }
    return EngineState(**values | changes)


def make_silent(**changes: Any) -> EngineState:
    """An engine that is there and says nothing: no value but who it is."""
    values: dict[str, Any] = {
        "engine": "quiet",
        "engine_id": "e2",
        "instance": "i2",
        "phase": "silent",
        "reason": "no word for 9.0 s: the process is stopped or gets no CPU",
        "report_age_seconds": 9.0,
        "report_sequence": None,
        "steps": None,
        "running": None,
        "waiting": None,
        "pool": None,
        "hooks": None,
        "verdicts": (),
        "detail": None,
        "workers_expected": None,
        "frontends_expected": None,
        "members": (),
        "memory": None,
    }
    return make_engine(**values | changes)


def make_link(**changes: Any) -> LinkState:
    """Counts that are all different."""
    values: dict[str, Any] = {
        "socket": "/run/kvtide/agent.sock",
        "connections": 2,
        "accepted": 9,
        "frames": 1234,
        "rejected_frames": {"oversize": 1, "malformed": 2},
        "refused_peers": {"uid": 3, "key": 4},
        "folded_names": {"engine": 1, "tenant": 40},
    }
    return LinkState(**values | changes)


def make_action(**changes: Any) -> Action:
    """A throttle that is in force and has helped."""
    plan = Plan(
        lever="watermark",
        subject=Subject(scope="engine", engine="m"),
        targets=("i1",),
        arguments={"blocks": 50},
        kind="kv_pressure",
        sentence="The KV pool is short.",
        evidence={"use_ratio": 0.97},
        expected=Expectation(signal="use_ratio", direction="down", amount=0.0125, seconds=20.0),
        undo="The watermark is lowered step by step to what it was.",
        lease_seconds=30.0,
        state_at=1_700_000_980.0,
        monotonic=49_980.0,
        rung="watermark",
    )
    values: dict[str, Any] = {
        "id": "a1b2c3",
        "plan": plan,
        "mode": "enforce",
        "phase": "in_force",
        "at": 1_700_000_980.0,
        "changed": 1_700_000_990.0,
        "before": 0.97,
        "after": 0.94,
        "verified": "helped",
    }
    return Action(**values | changes)


def make_actions(**changes: Any) -> ActionsState:
    """One action in force, one that is over, and the breaker closed."""
    values: dict[str, Any] = {
        "mode": "enforce",
        "breaker": BreakerState(failures=1),
        "recent": (make_action(), make_action(id="d4e5f6", phase="undone", reason="it is calm again")),
        "refused": (ActionCount(lever="active_cap", code="cooldown", count=3),),
        "done": (ActionCount(lever="watermark", code="undone", count=1),),
        "budget_left": 10,
    }
    return ActionsState(**values | changes)


def make_http(**changes: Any) -> HttpState:
    """A port of this host alone, which has turned away five that waited for too long."""
    refused = dict.fromkeys(REASONS, 0) | {"slow": 5}
    values: dict[str, Any] = {
        "listen": "127.0.0.1:9477",
        "loopback": True,
        "tls": False,
        "known": False,
        "problem": "",
        "connections": 2,
        "refused": refused,
    }
    return HttpState(**values | changes)


def make_state(*engines: EngineState, **changes: Any) -> AgentState:
    """One live engine with a leak and one silent engine, unless ``engines`` are given."""
    values: dict[str, Any] = {
        "at": 1_700_001_000.0,
        "monotonic": 50_000.0,
        "version": "0.1.0",
        "started_at": 1_699_999_000.0,
        "ready": True,
        "not_ready_reason": "",
        "link": make_link(),
        "engines": engines or (make_engine(), make_silent()),
        "sources": (make_source(),),
        "processes": (make_torch_process(),),
        "failures": (make_failure(engine="", process="train", role="torch", rank=0),),
        "failure_counts": (FailureCount(engine="m", process="", kind="oom", cause="fragmented", count=1),),
        "device": make_devices(),
        "host": make_host(),
        "driver_calls": make_driver_calls(),
        "scrape": make_scraped(),
        "waterfalls": (make_waterfall(),),
        "judgement": make_judgement(make_verdict(), make_found(held=True)),
        "recorder": make_recorder(),
        "actions": make_actions(),
        "policy": PolicyState(source="default", profile="default", loaded_at=1_699_999_000.0),
        "balancer": make_balancer(),
        "http": make_http(),
        "judge_errors": {"kv_orphan": 1},
    }
    return AgentState(**values | changes)
