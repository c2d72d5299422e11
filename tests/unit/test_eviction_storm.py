"""Evictions are a fault by what they cost: work that is done again, not by their number."""

from __future__ import annotations

from typing import Any

import pytest

from agent.policy.types import DEFAULT, TEXTBOOK, Policy
from agent.signals.types import TenantSignals
from agent.verdicts.base import Finding
from agent.verdicts.eviction_storm import EvictionStorm
from tests.unit.facts import facts, phases, signals
from tests.unit.timeline import times


def judge(policy: Policy = DEFAULT, **changes: Any) -> Finding | None:
    return EvictionStorm().judge(facts(policy, **changes))


@pytest.mark.parametrize(
    "quiet",
    [
        {"taken_per_minute": 90_000.0, "prefix_hit_ratio": 0.0, "rebuild_evicted_ratio": 0.02},  # nobody comes back
        {"rebuild_evicted_ratio": 0.68, "prefix_hit_ratio": 0.85},  # of the little that the cache doesn't serve
        {"rebuild_ratio": 0.4, "preempted_per_minute": 9.0},  # may all be preemptions
        {"rebuild_ratio": 0.4, "rebuild_evicted_ratio": 0.1, "preempted_per_minute": 0.0},
        {"prefix_hit_times": 0.3, "prefix_hit_ratio": 0.2, "use_ratio": 0.95},  # nobody feels it
        {"prefix_hit_times": 0.3, "prefix_hit_ratio": 0.2, "use_ratio": 0.4, "harm": True},  # there is room
        {"prefix_hit_times": 0.8, "prefix_hit_ratio": 0.2, "use_ratio": 0.95, "harm": True},
    ],
)
def test_it_is_quiet(quiet: dict[str, Any]) -> None:
    assert judge(**quiet) is None


def test_it_says_what_it_costs_and_who_has_grown() -> None:
    grown = TenantSignals(engine="m", tenant="batch", share_ratio=0.6, share_times=3.2)
    finding = judge(rebuild_evicted_ratio=0.22, prefix_hit_ratio=0.31, tenants=(grown,))
    assert finding is not None
    assert finding.sentence == (
        "Cached prefixes are evicted before they are used again: 22% of all prompt work is done again for that. Tenant "
        "batch holds 3.2 times its usual share meanwhile."
    )
    assert (finding.tier, finding.evidence) == ("warn", {"prefix_hit_ratio": 0.31, "rebuild_evicted_ratio": 0.22})
    assert "makes it worse" in finding.remedy
    finding = judge(rebuild_ratio=0.2, preempted_per_minute=0.0)
    assert finding is not None
    assert finding.sentence.endswith("20% of all prompt work is done again for that.")


def test_the_textbook_asks_for_prefill_alone() -> None:
    assert judge(TEXTBOOK, rebuild_evicted_ratio=0.68, prefix_hit_ratio=0.85) is not None
    assert judge(rebuild_evicted_ratio=0.68, prefix_hit_ratio=0.7) is not None


def test_it_pages_by_the_textbook_alone() -> None:
    for policy, tier in ((DEFAULT, "warn"), (TEXTBOOK, "page")):
        finding = judge(policy, rebuild_evicted_ratio=0.35)
        assert finding is not None
        assert finding.tier == tier


def test_on_a_page_it_shows_by_the_hit_ratio() -> None:
    finding = judge(
        prefix_hit_times=0.4, prefix_hit_ratio=0.2, use_ratio=0.95, harm=True, read={"hooked": False, "waiting": 7}
    )
    assert finding is not None
    assert finding.sentence == (
        "Only 20% of prompt tokens are found in the prefix cache, 40% of what is usual here, with the pool nearly "
        "full: cached prefixes are pushed out. 7 requests waiting."
    )


def test_over_time() -> None:
    def said(t: float) -> Any:
        return signals(rebuild_evicted_ratio=0.2 if 10 <= t < 200 else 0.0)

    assert phases("eviction_storm", times(330), said) == [
        (10.0, "suspect"),
        (70.0, "confirmed"),
        (259.0, "resolved"),
        (319.0, "none"),
    ]
