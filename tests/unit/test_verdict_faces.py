"""Verdicts of all scopes, in the terminal and on the page: the most urgent first, notes counted, doubts told."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from agent.episodes import Episodes
from agent.faces import signals, verdicts
from agent.faces.verdicts import MOST_SHOWN, since, told
from agent.signals.types import NodeSignals
from agent.state import AgentState, Verdict
from agent.subject import Subject
from agent.top.verdict_lines import head_of
from agent.verdicts.base import Finding, advance, verdict_of
from exporters.landing import page
from tests.unit.builders import make_engine, make_state, make_verdict
from tests.unit.judgements import (
    make_engine_signals,
    make_forecast,
    make_found,
    make_judgement,
    make_rate,
    make_recorder,
    make_score,
)
from tests.unit.test_status_face import drawn, words

START = 1_700_000_000.0


def node(*found: Verdict, **changes: object) -> AgentState:
    return make_state(make_engine(verdicts=()), judgement=make_judgement(*found), judge_errors={}, **changes)


def of(kind: str, **changes: object) -> Verdict:
    return make_found(kind=kind, **changes)


def test_the_most_urgent_comes_first_and_what_is_over_last() -> None:
    state = node(
        of("a", tier="note"),
        of("b", tier="warn"),
        of("c", phase="resolved"),
        of("d", phase="suspect"),
        of("e"),
        of("f", tier="note", phase="resolved"),
    )
    shown, rest = told(state)
    assert [verdict.kind for verdict in shown] == ["e", "d", "b", "c"]
    assert rest == "1 note not shown: kvtide status --json | jq .judgement.verdicts"
    text = words(drawn(state))
    assert "PAGE e GPU 1 confirmed since" in text
    assert "WARN b GPU 1 confirmed since" in text
    assert "OVER c GPU 1 resolved since" in text
    assert " a GPU 1" not in text
    assert rest in text
    html = page(state)
    assert html.index("<strong>page: e GPU 1</strong>") < html.index("<strong>warn: b GPU 1</strong>")
    assert rest.replace("|", "|") in html


def test_every_face_and_the_report_tell_the_same_time_of_confirmation() -> None:
    """Suspected at 100 s, confirmed at 105 s, worse at 120 s, over at 200 s."""
    suspicion = Finding("It leaks.", "Restart it.", {"blocks": 4.0}, tier="warn")
    worse, episodes, told_at = replace(suspicion, tier="page"), Episodes(), {}
    subject, track = Subject(scope="gpu", gpu="1"), None
    for now in range(100, 201, 5):
        track = advance(track, None if now == 200 else suspicion if now < 115 else worse, float(now), 5.0)
        assert track is not None
        verdict = verdict_of("leak", subject, track, float(now), START + now, held=False)
        episodes.take((verdict,), START + now)
        told_at[now] = verdict.phase, since(verdict) - START
        state = node(verdict, at=START + now)
        at = time.strftime("%H:%M:%S", time.localtime(since(verdict)))
        assert f"{verdict.phase} since {at}" in words(drawn(state))
        assert f"{verdict.phase} since {at}" in page(state)
        assert f"{verdict.phase} since" in "".join(part for part, *_ in head_of(verdict, START + now, 200))
        assert f" {at} (" in "".join(part for part, *_ in head_of(verdict, START + now, 200))
    (life,), _ = episodes.finish()
    assert told_at[100] == ("suspect", 100)
    assert told_at[105] == told_at[110] == told_at[195] == ("confirmed", life.confirmed_at - START)
    assert life.confirmed_at - START == 105
    assert verdict.changed - START == 200
    assert told_at[200] == ("resolved", 200)
    assert verdict.confirmed == life.confirmed_at


def test_a_recording_without_the_time_tells_the_last_change() -> None:
    assert since(of("a", since=10.0, changed=13.0)) == 13.0


def test_a_long_list_is_cut_and_the_rest_is_counted() -> None:
    many = [of("a", subject=Subject(scope="gpu", gpu=str(number))) for number in range(MOST_SHOWN + 3)]
    shown, rest = told(node(*many, of("b", tier="note"), of("c", tier="note")))
    assert len(shown) == MOST_SHOWN
    assert rest.startswith("3 more verdicts and 2 notes not shown")


def test_doubts_and_endings_are_told() -> None:
    state = node(of("a", held=True), of("b", phase="resolved", ending="engine gone"))
    for text in (words(drawn(state)), page(state).replace("&#x27;", "'")):
        assert "an't be seen now: this is how it was" in text
        assert "ngine gone" in text


def test_nothing_to_say_takes_no_line() -> None:
    state = make_state(make_engine(), judgement=None, judge_errors={}, actions=None)
    assert drawn(state).startswith("╭─ m")
    assert told(state) == ((), "")


def test_what_does_not_work_of_judging_and_recording_is_told() -> None:
    told = ("Nothing is recorded: the disk is full.", "kvtide itself failed at kv_orphan, scores")
    broken = make_recorder(recording=False, reason="the disk is full")
    state = make_state(make_engine(), recorder=broken, judge_errors={"scores": 2, "kv_orphan": 1})
    assert all(text in words(drawn(state)) for text in told)
    assert all(text in page(state) for text in told)
    well = words(drawn(make_state(make_engine(), judge_errors={})))
    assert not any(text in well for text in told)


def test_an_engine_points_to_its_verdicts_and_a_note_is_nothing_wrong() -> None:
    loud = make_engine(detail=None, members=(), verdicts=(make_verdict(tier="warn"), make_verdict(kind="kv_stall")))
    assert "See above: kv_orphan, kv_stall." in words(drawn(make_state(loud)))
    assert "See above: kv_orphan, kv_stall." in page(make_state(loud))
    for quiet in (make_verdict(tier="note"), make_verdict(phase="resolved")):
        engine = make_engine(detail=None, members=(), verdicts=(quiet,))
        assert verdicts.of_engine(engine) == ()
        assert "Nothing is wrong." in words(drawn(make_state(engine)))
        assert "Nothing is wrong." in page(make_state(engine))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "+3.0% of the pool a minute (+2.0% to +4.0%); unexplained: +0.6% of the pool a minute (+0.4% to +0.8%); "),
        ({"growth": None, "exhaustion": make_forecast(high=None)}, "full in 4 min (3 min to never) if it goes on like"),
        ({"growth": make_rate(0.0), "unexplained": None, "exhaustion": None}, "none to speak of"),
        ({"growth": None, "exhaustion": None}, ""),
    ],
)
def test_growth_and_forecast(changes: dict[str, object], text: str) -> None:
    judgement = make_judgement(signals=NodeSignals(engines=(make_engine_signals(**changes),)), scores=())
    found = [line.text for line in signals.lines(make_state(judgement=judgement), "m")]
    assert "; ".join(found).startswith(text)
    assert bool(found) == bool(text)
    assert list(signals.lines(make_state(judgement=judgement), "another")) == []


@pytest.mark.parametrize(
    ("value", "tier", "style"),
    [(100.0, "", ""), (60.0, "", ""), (59.0, "warning", "yellow"), (39.0, "severe", "#d55e00"), (59.0, "", "")],
)
def test_health(value: float, tier: str, style: str) -> None:
    """The colour is the tier's, which the policy in force has given it."""
    parts = (
        make_score(value=value, tier=tier),
        make_score(scope="kv", value=value),
        make_score(scope="host", value=99.6),
    )
    judgement = make_judgement(signals=NodeSignals(), scores=parts)
    (line,) = signals.lines(make_state(judgement=judgement), "m")
    assert (line.text, line.style) == (f"{value:.0f} of 100 (KV pool {value:.0f}, host 100)", style)


def test_an_emergency_says_so() -> None:
    judgement = make_judgement(signals=NodeSignals(), scores=(make_score(value=5.0, tier="emergency"),))
    (line,) = signals.lines(make_state(judgement=judgement), "m")
    assert line.text.startswith("5 of 100: act now")
    assert line.style == "#d55e00"
