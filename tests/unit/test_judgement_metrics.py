"""Signals, scores, verdicts and the recorder as metrics: base units, bounded, and nothing where nothing is known."""

from __future__ import annotations

import math

import pytest

from agent.signals.types import EngineSignals, NodeSignals
from agent.state import Judgement
from agent.subject import Subject
from exporters.collectors import recorder, scores, signals, signals_around, verdicts
from exporters.collectors.base import Collect
from tests.unit.builders import make_state
from tests.unit.judgements import make_engine_signals, make_found, make_judgement, make_recorder, make_score

MIB = 1024 * 1024


def values(collect: Collect, **changes: object) -> dict[tuple[str, ...], float]:
    found = [
        ((sample.metric.name.removeprefix("kvtide_"), *sample.labels), sample.value)
        for sample in collect(make_state(**changes))
    ]
    assert len(dict(found)) == len(found)
    return dict(found)  # type: ignore[arg-type]


def test_rates_are_a_second_and_forecasts_have_their_ends() -> None:
    found = values(signals.collect) | values(signals.collect_detail)
    expected = {
        ("kv_growth_per_second", "m", "estimate"): 0.03 / 60,
        ("kv_growth_per_second", "m", "low"): 0.02 / 60,
        ("kv_growth_per_second", "m", "high"): 0.04 / 60,
        ("kv_unexplained_growth_per_second", "m", "estimate"): 0.006 / 60,
        ("kv_growth_acceleration_per_second", "m"): 0.0036 / 3600,
        ("kv_exhaustion_seconds", "m", "estimate"): 240.0,
        ("kv_exhaustion_seconds", "m", "high"): 360.0,
        ("kv_slow_growth_per_second", "m", "estimate"): 0.018 / 3600,
        ("kv_leaking", "m"): 1,
        ("preemptions_per_second", "m"): 0.1,
        ("kv_blocks_taken_per_second", "m"): 10.0,
        ("memory_harm", "m"): 1,
        ("kv_residue_bytes", "m"): 9 * MIB,
        ("speculation_interruption_ratio", "m"): 0.04,
    }
    assert {key: pytest.approx(float(found[key])) for key in expected} == expected


def test_the_rest_of_the_node_likewise() -> None:
    found = values(signals_around.collect) | values(signals_around.collect_detail)
    expected = {
        ("tenant_pool_growth_per_second", "m", "acme"): 0.012 / 60,
        ("tenant_requests_per_second", "m", "acme"): 1.5,
        ("allocator_retries_per_second", "m", "", "worker", "1", "0"): 0.02,
        ("gpu_other_slow_growth_per_second", "0", "estimate"): 0.0072 / 3600,
        ("engine_memory_limit_seconds", "m", "core", "0", "cgroup", "low"): 1200.0,
    }
    assert {key: pytest.approx(float(found[key])) for key in expected} == expected
    assert ("engine_memory_limit_seconds", "m", "core", "0", "cgroup", "high") not in found, "it may never be"


def test_what_is_not_known_makes_no_sample() -> None:
    bare = EngineSignals(engine="m", instance="i1", hooked=True, age_seconds=1.0, settled=False)
    for collect in (signals.collect, signals.collect_detail):
        assert values(collect, judgement=make_judgement(signals=NodeSignals(engines=(bare,)))) == {}
    around = (signals_around.collect, signals_around.collect_detail)
    for collect in (signals.collect, signals.collect_detail, *around, scores.collect, verdicts.collect):
        assert values(collect, judgement=None) == {}
    assert values(recorder.collect, recorder=None, judge_errors={}) == {}


def test_of_an_engine_with_hooks_and_a_page_the_hooks_count() -> None:
    page = make_engine_signals(hooked=False, use_ratio=0.1)
    judgement = make_judgement(signals=NodeSignals(engines=(page, make_engine_signals())))
    assert values(signals.collect, judgement=judgement)["kv_use_ratio", "m"] == 0.75


def test_verdicts_are_bounded_the_most_urgent_stay_and_all_are_counted() -> None:
    many = [
        make_found(subject=Subject(scope="tenant", engine="m", tenant=f"t{number}"), tier=tier)
        for tier in ("note", "warn", "page")
        for number in range(200)
    ]
    found = values(verdicts.collect, judgement=Judgement(at=0.0, verdicts=tuple(many)))
    shown = [key for key in found if key[0] == "verdict"]
    assert len(shown) == verdicts.MOST_VERDICTS
    assert [key[-1] for key in shown].count("page") == 200
    assert [key[-1] for key in shown].count("note") == 0
    assert found["verdicts", "confirmed", "note"] == 200
    assert found["verdicts", "suspect", "page"] == 0


def test_what_can_not_be_seen_has_the_same_series_and_one_that_says_so() -> None:
    seen = values(verdicts.collect, judgement=make_judgement(make_found()))
    held = values(verdicts.collect, judgement=make_judgement(make_found(held=True)))
    (shown,) = (key for key in seen if key[0] == "verdict")
    assert held == seen | {("verdict_held", *shown[1:-2]): 1}, "else an alert would resolve, and page again"
    assert not [key for key in seen if key[0] == "verdict_held"]


def test_what_can_be_seen_comes_before_what_can_not() -> None:
    many = [
        make_found(held=not number % 2, subject=Subject(scope="engine", engine=f"m{number}")) for number in range(300)
    ]
    found = values(verdicts.collect, judgement=Judgement(at=0.0, verdicts=tuple(many)))
    assert len([key for key in found if key[0] == "verdict"]) == verdicts.MOST_VERDICTS
    assert len([key for key in found if key[0] == "verdict_held"]) == verdicts.MOST_VERDICTS - 150


def test_two_sources_that_are_stale_are_two_series() -> None:
    stale = [
        make_found(kind="sensor_stale", subject=Subject(scope="source", source=name)) for name in ("host", "device")
    ]
    found = values(verdicts.collect, judgement=make_judgement(*stale))
    assert len([key for key in found if key[0] == "verdict"]) == 2


def test_scores_in_both_forms() -> None:
    twice = make_judgement(scores=(make_score(), make_score(value=1.0), make_score(form="textbook", value=math.pi)))
    found = values(scores.collect, judgement=twice)
    assert found == {
        ("health_score", "engine", "m", "", "kvtide"): 55.0,
        ("health_score", "engine", "m", "", "textbook"): math.pi,
    }


def test_how_recording_goes() -> None:
    found = values(recorder.collect, recorder=make_recorder(recording=False, reason="the disk is full"))
    assert found["recorder_up",] == 0
    assert found["recorder_states_total",] == 1800
    assert found["recorder_states_dropped_total",] == 2
    assert found["recorder_bytes",] == 9 * MIB
    assert found["judge_errors_total", "kv_orphan"] == 1
