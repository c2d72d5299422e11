"""Preemptions that cost much of all prompt work, or after which no token comes; a few in a full pool are none."""

from __future__ import annotations

from typing import Any

import pytest

from agent.verdicts.base import Finding, advance
from agent.verdicts.preemption_thrash import PreemptionThrash
from tests.unit.facts import facts, phases, signals
from tests.unit.timeline import times

SWINGS = {
    "tokens_per_second": 0.0,
    "in_teeth": True,
    "amplitude_ratio": 0.98,
    "period_seconds": 20.0,
    "read": {"generated_total": 700},
}


def judge(**changes: Any) -> Finding | None:
    return PreemptionThrash().judge(facts(**changes))


@pytest.mark.parametrize(
    "quiet",
    [
        {},
        {"preempted_per_minute": 25.6, "rebuild_ratio": 0.07},  # 7.4 % of requests, all of which completed
        {"preempted_per_minute": 2.0, "rebuild_ratio": 0.5},  # one long prompt, once
        {"preempted_per_minute": 0.0, "rebuild_ratio": 0.4},  # evictions have a verdict of their own
        {"preempted_per_minute": 20.0, "rebuild_ratio": 0.4, "rebuild_evicted_ratio": 0.3},
        {"preempted_per_minute": 5.0, "tokens_per_second": 300.0},  # a page: it does not tell what is rebuilt
        {"preempted_per_minute": 20.0, "tokens_per_second": 300.0, "read": {"running": 64}},
        {**SWINGS, "read": {"generated_total": 0}},  # it only embeds
        {**SWINGS, "tokens_per_second": 5.0},
        {**SWINGS, "in_teeth": False},
        {**SWINGS, "period_seconds": None},  # it fell once, when all was aborted, and stands still since
    ],
)
def test_it_is_quiet(quiet: dict[str, Any]) -> None:
    assert judge(**quiet) is None


@pytest.mark.parametrize(("ratio", "tier"), [(0.15, "warn"), (0.29, "warn"), (0.30, "page")])
def test_it_is_as_bad_as_the_work_that_is_done_again(ratio: float, tier: str) -> None:
    finding = judge(preempted_per_minute=12.0, rebuild_ratio=ratio + 0.05, rebuild_evicted_ratio=0.05)
    assert finding is not None
    assert finding.tier == tier
    assert finding.sentence == (
        f"Running requests are thrown out for memory 12 times a minute: {ratio:.0%} of all prompt work is done again "
        "for them."
    )
    assert "look for a leak" in finding.remedy
    assert finding.evidence["rebuild_ratio"] == pytest.approx(ratio)


def test_on_a_page_it_shows_by_its_tokens() -> None:
    finding = judge(preempted_per_minute=40.0, tokens_per_second=0.0, read={"running": 3})
    assert finding is not None
    assert finding.tier == "page"
    assert finding.sentence == "Running requests are thrown out for memory 40 times a minute, and no token comes."
    finding = judge(preempted_per_minute=12.0, tokens_per_second=80.0, read={"running": 3})
    assert finding is not None
    assert finding.tier == "warn"
    assert finding.sentence.endswith("12 times a minute, with 3 requests running.")


def test_a_prompt_that_is_computed_over_and_over_without_a_preemption_that_is_counted() -> None:
    finding = judge(**SWINGS)
    assert finding is not None
    assert finding.tier == "page"
    assert finding.sentence == (
        "No token was generated in the last minute, while held blocks go up and down by 98% of the pool: a prompt is "
        "computed and thrown away over and over."
    )
    assert "Abort the request" in finding.remedy


def test_swings_must_go_on_after_the_last_token() -> None:
    """Two periods after the last of them teeth are over: what ends by then were those before a stall."""

    def confirmed(end: float) -> bool:
        track = None
        for t in times(330):
            finding = judge(**SWINGS | {"period_seconds": 100.0, "in_teeth": t < end})
            track = advance(track, finding, t, PreemptionThrash.confirm_seconds, PreemptionThrash.clear_seconds)
            if track is not None and track.phase == "confirmed":
                return True
        return False

    assert not confirmed(200.0)
    assert confirmed(201.0)


def test_over_time() -> None:
    def said(t: float) -> Any:
        return signals(preempted_per_minute=12.0, rebuild_ratio=0.4 if 10 <= t < 200 and t != 120 else 0.1)

    assert phases("preemption_thrash", times(330), said) == [
        (10.0, "suspect"),
        (70.0, "confirmed"),
        (259.0, "resolved"),
        (319.0, "none"),
    ]
