"""The gates of a roll-out: each fails for its own reason, and what nobody knows does not pass."""

from __future__ import annotations

import msgspec
import pytest

from agent.backtest.result import Episode
from agent.canary.evidence import Evidence
from agent.canary.gates import Limits, Stage, judge
from agent.subject import Subject

LIMITS = Limits()


def evidence(**changes: object) -> Evidence:
    """An hour of one engine that serves a thousand requests, one of them badly."""
    sound = Evidence(
        watched_seconds=3600.0,
        engines=1,
        ended=1000,
        failed=1,
        p99_seconds=1.2,
        p99_requests=1000,
        out_of_memory=0,
        episodes=(),
    )
    return msgspec.structs.replace(sound, **changes)


def episode(kind: str, tier: str) -> Episode:
    return Episode(
        kind=kind,
        subject=Subject(scope="engine", engine="m"),
        tier=tier,  # type: ignore[arg-type]
        suspected_at=0.0,
        confirmed_at=1.0,
        paged_at=None,
        resolved_at=None,
        ending="",
        sentence="",
        evidence={},
    )


@pytest.mark.parametrize("stage", [10, 30, 100])
def test_a_candidate_like_its_baseline_goes_on(stage: Stage) -> None:
    outcome = judge(evidence(), evidence(), stage, LIMITS)
    assert outcome.passed
    assert {gate.state for gate in outcome.gates} == {"passed"}


@pytest.mark.parametrize(
    ("changes", "since", "reason"),
    [
        ({"out_of_memory": 1}, 10, "the candidate ran out of memory (1)"),
        ({"episodes": (episode("kv_orphan", "warn"),)}, 10, "the candidate leaks: kv_orphan"),
        ({"episodes": (episode("kv_stall", "page"),)}, 10, "the candidate pages and the baseline does not: kv_stall"),
        ({"watched_seconds": 60.0}, 10, "the candidate was watched for 60 s only, of 5 min"),
        ({"ended": 12, "failed": 0}, 10, "the candidate has served 12 requests only, of 100"),
        ({"p99_seconds": 2.5}, 30, "the candidate's P99 is 2.5 s, 2.0 s allowed"),
        ({"p99_seconds": None}, 30, "the candidate's P99 is not known"),
        ({"failed": 11}, 100, "1.1% of the candidate's requests ended by an error, 1.0% allowed"),
        ({"ended": None, "failed": None}, 100, "the candidate's share of errors is not known"),
    ],
)
def test_each_gate_stops_from_its_stage_on(changes: dict[str, object], since: int, reason: str) -> None:
    for stage in (10, 30, 100):
        outcome = judge(evidence(), evidence(**changes), stage, LIMITS)  # type: ignore[arg-type]
        assert outcome.passed == (stage < since), outcome
        assert (reason in outcome.reason) == (stage >= since)


def test_limits_are_no_breach() -> None:
    assert judge(evidence(), evidence(p99_seconds=2.0, failed=10), 100, LIMITS).passed


def test_pages_that_the_baseline_has_too_are_not_the_candidates() -> None:
    both = {"episodes": (episode("kv_pressure", "page"),)}
    assert judge(evidence(**both), evidence(**both), 10, LIMITS).passed


def test_a_warning_of_pressure_stops_nothing_and_a_leak_of_both_does() -> None:
    warned = {"episodes": (episode("kv_pressure", "warn"),)}
    assert judge(evidence(), evidence(**warned), 10, LIMITS).passed
    leaking = {"episodes": (episode("host_growth", "warn"),)}
    assert not judge(evidence(**leaking), evidence(**leaking), 10, LIMITS).passed


def test_where_the_baseline_is_slow_itself_it_is_the_measure() -> None:
    slow = evidence(p99_seconds=10.0)
    assert judge(slow, evidence(p99_seconds=14.0), 30, LIMITS).passed
    assert not judge(slow, evidence(p99_seconds=15.5), 30, LIMITS).passed
