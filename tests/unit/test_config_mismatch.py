"""Settings that can't work with this pool: a limit of requests above it, quotas beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.oom.judge import judge as judge_message
from agent.signals.types import NodeSignals
from agent.state import AgentState
from agent.subject import Subject
from agent.verdicts.base import Finding, View
from agent.verdicts.config_mismatch import ConfigMismatch
from engine_hooks.allocator import MEMORY
from tests.unit.allocators import make_event, make_failure
from tests.unit.details import make_detail, make_group, make_tenant, make_waiting
from tests.unit.timeline import UNIX, engine, pool, state, times, watch

BARE = {"tenants": (), "groups": (make_group(),), "pools": (), "delayed": (), "pins": (), "speculation": None}


def judge(**changes: Any) -> Finding | None:
    detail = make_detail(**BARE | changes.pop("detail", {}))
    node = state(0.0, engines=(engine(detail=detail, **changes),))
    return dict(ConfigMismatch().judge(View(node, NodeSignals()))).get(Subject(scope="engine", engine="m"))


def test_a_limit_of_requests_above_the_pool() -> None:
    """kv-27: a pool of 76,640 tokens against a limit of 262,144."""
    small = pool(capacity=4790, held=100, longest_tokens=262_144)
    finding = judge(pool=small)
    assert finding is not None
    assert finding.tier == "warn"
    assert finding.sentence == (
        "Requests may be 262,144 tokens long (max_model_len), and the KV pool has room for 76,640: a longer one can "
        "never run, and all behind it wait."
    )
    groups = {"groups": (make_group(), make_group(group=1))}
    assert judge(pool=small, detail=groups) is None, "a sliding window needs less"
    for kind in ("sliding_window", "chunked_local_attention", "mamba"):
        assert judge(pool=small, detail={"groups": (make_group(kind=kind),)}) is None, f"so does {kind} alone"
    assert judge(pool=small, detail={"groups": (make_group(kind="mla"),)}) is not None
    assert judge(pool=pool(capacity=4790, longest_tokens=76_640)) is None
    assert judge(pool=pool(capacity=4790)) is None


def test_quotas_beyond_the_pool_are_a_note() -> None:
    rows = (make_tenant(quota_blocks=600), make_tenant(tenant="b", quota_blocks=500))
    finding = judge(detail={"tenants": rows})
    assert finding is not None
    assert finding.tier == "note"
    assert "1,100 blocks by their quotas, and the pool has 1,000" in finding.sentence
    assert judge(detail={"tenants": rows[:1]}) is None


NEVER = (
    "ValueError: To serve at least one request with the model's max seq len (65536), (2.45 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (1.90 GiB). Try increasing `gpu_memory_utilization` or "
    "decreasing `max_model_len` when initializing the engine."
)


def test_an_engine_that_can_not_start_with_these_settings() -> None:
    """cold-02: 1.9 GiB are left for the KV cache, where 65,536 tokens need 2.45."""

    def states(message: str) -> Iterator[AgentState]:
        event = make_event(kind=MEMORY, message=message, at=UNIX + 10)
        failed = make_failure(engine="m", event=event, judgement=judge_message(message, event))
        for t in times(800, 5.0):
            yield state(t, failures=(failed,) if t >= 10 else ())

    seen = watch(states(NEVER))
    (verdict,) = [each for _, each in seen.confirmed if each.kind == "config_mismatch"]
    assert seen.at("config_mismatch") == 10.0
    assert (verdict.tier, verdict.subject.engine) == ("page", "m")
    assert verdict.sentence.startswith("Engine m can't start with these settings.")
    assert "2.5 GiB" in verdict.sentence or "2.4 GiB" in verdict.sentence
    assert "max_model_len" in verdict.remedy
    other = "RuntimeError: Free memory on device (1.2/24.0 GiB) on startup is less than desired GPU memory utilization"
    assert "config_mismatch" not in watch(states(other)).kinds(), "something else is on that card"


def test_over_time() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(200):
            limit = 262_144 if 10 <= t < 100 else None
            calm = make_waiting(reasons={}, stalled_seconds=None, stalled_by="")
            detail = make_detail(**BARE | {"waiting": calm, "leaks": (), "allocation": None, "work": None})
            yield state(t, engines=(engine(pool=pool(longest_tokens=limit), detail=detail),))

    seen = watch(states())
    assert seen.at("config_mismatch") == 40.0
    assert seen.kinds() == {"config_mismatch"}
    assert seen.last == ()
