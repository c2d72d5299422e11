"""Settings that can't work with this pool: a limit of requests above it, quotas beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.state import AgentState
from agent.verdicts.base import Finding
from agent.verdicts.config_mismatch import ConfigMismatch
from tests.unit.details import make_detail, make_group, make_tenant, make_waiting
from tests.unit.facts import facts
from tests.unit.timeline import engine, pool, state, times, watch

BARE = {"tenants": (), "groups": (make_group(),), "pools": (), "delayed": (), "pins": (), "speculation": None}


def judge(**changes: Any) -> Finding | None:
    detail = make_detail(**BARE | changes.pop("detail", {}))
    return ConfigMismatch().judge(facts(detail=detail, **changes))


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
    assert judge(pool=pool(capacity=4790, longest_tokens=76_640)) is None
    assert judge(pool=pool(capacity=4790)) is None


def test_quotas_beyond_the_pool_are_a_note() -> None:
    rows = (make_tenant(quota_blocks=600), make_tenant(tenant="b", quota_blocks=500))
    finding = judge(detail={"tenants": rows})
    assert finding is not None
    assert finding.tier == "note"
    assert "1,100 blocks by their quotas, and the pool has 1,000" in finding.sentence
    assert judge(detail={"tenants": rows[:1]}) is None


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
