"""Verdicts as episodes, harm, labels, gaps, and two policies side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from agent import episodes as episodes_module
from agent.backtest.compare import compare
from agent.backtest.harm import HarmLog
from agent.backtest.labels import found, marked
from agent.backtest.result import Episode, episode_of
from agent.backtest.watch import Watch
from agent.episodes import Episodes
from agent.oom.log import FailureCount
from agent.signals.types import EngineSignals, NodeSignals
from agent.state import AgentState, Judgement, Verdict
from agent.subject import Subject
from tests.unit.allocators import make_failure
from tests.unit.backtests import MONO, WALL, M, engine, episode, label, state, verdict
from tests.unit.node_builders import make_host, make_scraped, make_scraped_engine


def folded(steps: Iterable[tuple[float, Iterable[Verdict]]]) -> tuple[Episodes, tuple[Episode, ...], Any]:
    folding = Episodes()
    for at, verdicts in steps:
        folding.take(tuple(verdicts), MONO + at, MONO - WALL)
    told, passed = folding.finish()
    return folding, tuple(map(episode_of, told)), passed


def test_a_verdict_from_its_suspicion_to_its_end() -> None:
    _, (episode,), passed = folded(
        [
            (0, []),
            (10, [verdict("suspect", 10, 10)]),
            (20, [verdict("confirmed", 10, 20)]),
            (30, [verdict("confirmed", 10, 20, tier="page", sentence="later")]),
            (40, [verdict("confirmed", 10, 20)]),
            (50, [verdict("resolved", 10, 50, ending="engine gone")]),
            (60, [verdict("resolved", 10, 50, ending="engine gone")]),
            (70, []),
        ]
    )
    assert (episode.kind, episode.subject, episode.tier, episode.ending) == ("kv_orphan", M, "page", "engine gone")
    # All times are by the history's own clock.
    assert (episode.suspected_at, episode.confirmed_at) == (MONO + 10, MONO + 20)
    assert (episode.paged_at, episode.resolved_at) == (MONO + 30, MONO + 50)
    assert (episode.sentence, episode.evidence) == ("4 blocks are leaked.", {"orphaned_blocks": 4.0})
    assert passed == ()


def test_a_suspicion_that_went_away_is_counted_and_is_no_verdict() -> None:
    steps = [(at, [verdict("suspect", at - at % 100, at)] if at % 100 < 30 else []) for at in range(0, 300, 10)]
    _, episodes, (passed,) = folded(steps)
    assert episodes == ()
    assert (passed.kind, passed.count, passed.longest_seconds) == ("kv_orphan", 3, 20.0)
    assert folded([(0, [verdict("suspect", 0, 0)])])[1:] == ((), ())  # one that stands at the end is neither


def test_what_comes_again_is_another_verdict_and_subjects_are_apart() -> None:
    other = Subject(scope="tenant", engine="m", tenant="a")
    _, episodes, _ = folded(
        [
            (0, [verdict("confirmed", 0, 0), verdict("confirmed", 0, 0, subject=other)]),
            (10, [verdict("resolved", 0, 10)]),  # the other has vanished: its subject is out of sight
            (20, [verdict("confirmed", 20, 20)]),
            (30, [verdict("confirmed", 20, 20)]),
        ]
    )
    assert [(each.subject, each.confirmed_at - MONO, each.resolved_at and each.resolved_at - MONO) for each in episodes]
    ended = {(each.subject.tenant, each.confirmed_at - MONO): each.resolved_at for each in episodes}
    assert ended == {("", 0.0): MONO + 10, ("a", 0.0): MONO + 10, ("", 20.0): None}


def test_a_clock_that_is_set_moves_no_time() -> None:
    folding = Episodes()
    folding.take((verdict("suspect", 0, 0),), MONO, MONO - WALL)
    folding.take((verdict("confirmed", 3600, 3610),), MONO + 10, MONO + 10 - (WALL + 3610))
    (episode,), _ = folding.finish()
    assert (episode.suspected_at, episode.confirmed_at) == (MONO, MONO + 10)


def test_the_number_of_verdicts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes_module, "MAX_EPISODES", 3)
    steps = [(at, [verdict("confirmed", at, at)] if at % 2 else []) for at in range(20)]
    folding, episodes, _ = folded(steps)
    assert (len(episodes), folding.left_out) == (3, 7)


def harm_of(states: Iterable[AgentState]) -> HarmLog:
    log = HarmLog()
    for each in states:
        log.take(each, Judgement(at=each.at), each.monotonic)
    return log


def first(log: HarmLog, since: float, until: float | None = None, whom: str = "m") -> tuple[str, float] | None:
    harm = log.first(whom, MONO + since, None if until is None else MONO + until)
    return None if harm is None else (harm.what, harm.at - MONO)


def test_what_harms() -> None:
    log = harm_of(
        [
            state(0, engines=(engine(5, 5),)),
            state(10, engines=(engine(5, 5),)),
            state(20, engines=(engine(6, 5),)),
            state(200, engines=(engine(6, 7),)),
            state(400, engines=(engine(6, 7, stalled=9.0),)),
            state(402, engines=(engine(6, 7, stalled=11.0),)),
            state(600, engines=(engine(0, 0, instance="i2"),)),  # began again: nothing was refused
        ]
    )
    assert log.counts() == {"preempted": 1, "refused": 1, "stalled": 1}
    assert first(log, 0) == ("refused", 20.0)
    assert first(log, 21) == ("preempted", 200.0)
    assert first(log, 201) == ("stalled", 391.0)
    assert first(log, 395) == ("stalled", 395.0)  # it was there already
    assert first(log, 403) is None
    assert first(log, 0, until=19) is None
    assert first(log, 0, whom="n") is None
    assert first(log, 0, whom="") == ("refused", 20.0)


def test_harm_that_goes_on_is_one_stretch() -> None:
    log = harm_of(state(at, engines=(engine(at),)) for at in range(0, 600, 10))
    assert log.counts() == {"refused": 1}
    assert first(log, 300) == ("refused", 300.0)
    log = harm_of(state(at, engines=(engine(at),)) for at in range(0, 600, 100))
    assert log.counts() == {"refused": 5}
    assert first(log, 310) == ("refused", 400.0)


def test_failures_and_kills_harm_and_what_was_before_does_not() -> None:
    count = FailureCount(engine="m", process="", kind="oom", cause="out", count=2)
    killed = {"m": 1, "n": 0}
    states = [
        state(0, engines=(engine(),), failure_counts=(count,), host=make_host(kills_total=killed)),
        state(10, engines=(engine(),), failure_counts=(count,), host=make_host(kills_total=killed)),
    ]
    assert harm_of(states).counts() == {}
    more = FailureCount(engine="m", process="", kind="oom", cause="fragmented", count=1)
    states += [
        state(200, engines=(engine(),), failure_counts=(count, more), host=make_host(kills_total={"m": 2, "n": 1})),
    ]
    log = harm_of(states)
    assert log.counts() == {"killed": 2, "oom": 1}
    assert first(log, 0, whom="n") == ("killed", 200.0)
    failure = make_failure(engine="m")
    late = replace(failure, event=replace(failure.event, at=WALL + 15.0))
    early = replace(failure, event=replace(failure.event, at=WALL - 15.0))
    assert first(harm_of([state(0), state(20, failures=(late, early))]), 0) == ("oom", 15.0)
    assert harm_of([state(0), state(20, failures=(early,))]).counts() == {}


def test_an_engine_without_hooks_is_harmed_by_what_its_page_says() -> None:
    def page(at: float, **values: Any) -> AgentState:
        return state(at, engines=(), scrape=make_scraped(make_scraped_engine(engine="s", **values)))

    log = HarmLog()
    for at, preemptions, still in ((0, 5, 0.0), (10, 6, 0.0), (200, 6, 30.0)):
        signals = EngineSignals(
            engine="s", instance="", hooked=False, age_seconds=0.0, settled=True, still_seconds=still
        )
        judgement = Judgement(at=WALL + at, signals=NodeSignals(engines=(signals,)))
        log.take(page(at, preemptions=preemptions), judgement, MONO + at)
    assert log.counts() == {"preempted": 1, "stalled": 1}
    assert first(log, 20, whom="s") == ("stalled", 170.0)


def test_a_label_is_found_by_the_first_verdict_of_its_kind_at_its_place_and_time() -> None:
    log = harm_of([state(0, engines=(engine(5),)), state(300, engines=(engine(6),))])
    outcome = found(label(100), [episode(50), episode(130), episode(140)], log)
    assert (outcome.delay_seconds, outcome.lead_seconds) == (30.0, 170.0)
    assert found(label(100), [episode(350)], log).lead_seconds == -50.0
    assert found(label(100), [episode(130)], HarmLog()).lead_seconds is None
    elsewhere = Subject(scope="engine", engine="n")
    acme, other = (Subject(scope="tenant", engine="m", tenant=name) for name in ("acme", "other"))
    for missed in (
        found(label(100), [], log),
        found(label(100), [episode(130, kind="kv_pinned")], log),
        found(label(100), [episode(130, subject=elsewhere)], log),
        found(label(100, subject=acme), [episode(130, subject=other)], log),
        found(label(100, ended=110), [episode(130)], log),  # suspected after the fault had gone
    ):
        assert (missed.delay_seconds, missed.lead_seconds) == (None, None)
    assert found(label(100, ended=125), [episode(130)], log).delay_seconds == 30.0
    assert found(label(100, subject=acme), [episode(130, subject=acme)], log).delay_seconds == 30.0


def test_what_no_label_accounts_for_is_not_expected() -> None:
    labels = (label(100, ended=200),)
    elsewhere = Subject(scope="engine", engine="n")
    cases = [
        (episode(130), True),
        (episode(50), False),
        (episode(300), False),
        (episode(130, kind="kv_pressure"), True),  # what follows from a fault is no false verdict
        (episode(130, subject=elsewhere), False),
        (episode(50, tier="note"), True),
        (episode(130, subject=Subject(scope="gpu", gpu="0")), True),
    ]
    given = [each for each, _ in cases]
    assert [each.expected for each in marked(given, labels)] == [wanted for _, wanted in cases]
    assert [each.expected for each in marked(given, ())] == [False, False, False, False, False, True, False]
    assert {each.expected for each in marked(given, None)} == {None}


def test_a_note_finds_nothing_and_a_verdict_counts_from_when_somebody_is_told() -> None:
    note = episode(100, tier="note")
    assert found(label(50), (note,), HarmLog()).delay_seconds is None
    told = found(label(50), (note, episode(130, tier="warn")), HarmLog())
    assert told.delay_seconds == 80.0

    episodes = Episodes()
    for at in range(100):
        since = 5 if at < 60 else 60
        tier = "note" if at < 60 else "warn"
        given = verdict("confirmed", since, since, tier=tier, sentence=tier)
        episodes.take((given,), MONO + at, MONO - WALL)
    ((told_last,), _) = episodes.finish()
    closed = episode_of(told_last)
    assert (closed.confirmed_at - MONO, closed.tier, closed.sentence) == (60.0, "warn", "warn")


def test_harm_of_an_engine_that_has_both_hooks_and_a_page() -> None:
    def both(at: float, preempted: int) -> AgentState:
        pages = make_scraped(make_scraped_engine(engine="m", preemptions=preempted))
        return state(at, engines=(engine(0, preempted),), scrape=pages)

    log = harm_of([both(0, 5), both(10, 5), both(20, 6), both(30, 6)])
    assert log.counts() == {"preempted": 1}
    assert first(log, 0) == ("preempted", 20.0)


def test_two_policies_side_by_side() -> None:
    pinned = episode(500, kind="kv_pinned")
    one = [episode(100, resolved_at=MONO + 200), episode(400, resolved_at=MONO + 450), pinned]
    other = [episode(130, resolved_at=MONO + 210), episode(600), episode(100, kind="kv_stall")]
    outcome = compare(one, other)
    ((pair,), alone, theirs) = outcome.both, outcome.only_first, outcome.only_second
    assert (pair.first, pair.second, pair.later_seconds) == (one[0], other[0], 30.0)
    assert (alone, theirs) == ((one[1], pinned), (other[1], other[2]))
    assert compare(one, one).only_first == compare(one, one).only_second == ()
    # One long verdict of the second stands for one of the first, not for each.
    outcome = compare(one[:2], [episode(100)])
    assert (len(outcome.both), len(outcome.only_first), outcome.only_second) == (1, 1, ())


@pytest.mark.parametrize(
    ("times", "gaps", "seconds"),
    [
        ([], 0, 0.0),
        ([0.0], 0, 0.0),
        (list(range(100)), 0, 0.0),
        ([*range(100), *range(400, 500)], 1, 301.0),
        ([*range(100), *range(100, 3700, 60)], 0, 0.0),  # sampled less often: no gap
        ([*range(0, 600, 60), *range(4000, 4600, 60)], 1, 3460.0),
        ([*range(100), *range(103, 200)], 0, 0.0),  # a hiccup
        ([*range(100), 1000.0], 1, 901.0),
        ([*range(50), *range(150, 200), *range(300, 350)], 2, 202.0),
    ],
)
def test_gaps_are_not_watched(times: list[float], gaps: int, seconds: float) -> None:
    watch = Watch()
    for at in times:
        watch.take(at)
    watch.finish()
    assert (watch.states, watch.gaps, watch.gap_seconds) == (len(times), gaps, seconds)
    assert watch.watched_seconds == (times[-1] - times[0] - seconds if times else 0.0)
