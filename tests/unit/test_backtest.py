"""Verdicts as episodes, harm, labels, two policies side by side, and the command that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from agent.backtest import episodes as episodes_module
from agent.backtest.compare import compare
from agent.backtest.episodes import Episodes
from agent.backtest.harm import HarmLog
from agent.backtest.labels import found, marked
from agent.backtest.result import Backtest, Episode, Label
from agent.backtest.run import Feed, Named, run
from agent.backtest.span import Span, seconds_of, shown, span_of
from agent.backtest.text import MOST, render
from agent.backtest.watch import Watch
from agent.bundle.format import Header, Usuals, Writer
from agent.bundle.header import Label as BundleLabel
from agent.cli.app import app
from agent.cli.app import run as run_command
from agent.errors import ConfigError
from agent.faces.terminal import Terminal
from agent.judge import Judge
from agent.oom.log import FailureCount
from agent.policy.types import DEFAULT, TEXTBOOK, Policy
from agent.replay.bundles import AGENT_ENDED
from agent.signals.types import EngineSignals, NodeSignals
from agent.state import AgentState, Judgement, Subject, Verdict
from tests.unit.allocators import make_failure
from tests.unit.builders import make_detail, make_engine, make_pool, make_state
from tests.unit.details import make_allocation, make_waiting
from tests.unit.node_builders import make_host, make_scraped, make_scraped_engine

WALL, MONO = 1_700_000_000.0, 5_000.0
M = Subject(scope="engine", engine="m")


def verdict(phase: str, since: float, changed: float, **changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "kind": "kv_orphan",
        "phase": phase,
        "since": WALL + since,
        "changed": WALL + changed,
        "sentence": "4 blocks are leaked.",
        "remedy": "",
        "evidence": {"orphaned_blocks": 4.0},
        "subject": M,
        "tier": "warn",
    }
    return Verdict(**values | changes)


def folded(steps: Iterable[tuple[float, Iterable[Verdict]]]) -> tuple[Episodes, tuple[Episode, ...], Any]:
    folding = Episodes()
    for at, verdicts in steps:
        folding.take(Judgement(at=WALL + at, verdicts=tuple(verdicts)), MONO + at)
    return folding, *folding.finish()


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
    folding.take(Judgement(at=WALL, verdicts=(verdict("suspect", 0, 0),)), MONO)
    folding.take(Judgement(at=WALL + 3610, verdicts=(verdict("confirmed", 3600, 3610),)), MONO + 10)
    (episode,), _ = folding.finish()
    assert (episode.suspected_at, episode.confirmed_at) == (MONO, MONO + 10)


def test_the_number_of_verdicts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes_module, "MAX_EPISODES", 3)
    steps = [(at, [verdict("confirmed", at, at)] if at % 2 else []) for at in range(20)]
    folding, episodes, _ = folded(steps)
    assert (len(episodes), folding.left_out) == (3, 7)


def state(at: float, **changes: Any) -> AgentState:
    quiet: dict[str, Any] = {"host": None, "scrape": None, "failures": (), "failure_counts": (), "sources": ()}
    return make_state(at=WALL + at, monotonic=MONO + at, **quiet | changes)


def engine(refused: int = 0, preempted: int = 0, stalled: float | None = None, **changes: Any) -> Any:
    detail = replace(
        make_detail(),
        allocation=make_allocation(refused_total=refused, preempted_total=preempted),
        waiting=make_waiting(stalled_seconds=stalled),
    )
    return make_engine(detail=detail, verdicts=(), **changes)


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


def episode(confirmed: float, **changes: Any) -> Episode:
    values: dict[str, Any] = {
        "kind": "kv_orphan",
        "subject": M,
        "tier": "page",
        "suspected_at": MONO + confirmed - 10,
        "confirmed_at": MONO + confirmed,
        "paged_at": MONO + confirmed,
        "resolved_at": None,
        "ending": "",
        "sentence": "",
        "evidence": {},
    }
    return Episode(**values | changes)


def label(onset: float, ended: float | None = None, subject: Subject = M, kind: str = "kv_orphan") -> Label:
    return Label(kind=kind, subject=subject, onset=MONO + onset, ended=None if ended is None else MONO + ended)


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


@dataclass
class Given:
    """States and labels from a list."""

    given: list[AgentState]
    truth: tuple[Label, ...] | None = None

    def records(self) -> Iterator[tuple[str, AgentState]]:
        return (("night", each) for each in self.given)

    def labels(self) -> tuple[Label, ...] | None:
        return self.truth

    def remarks(self) -> tuple[str, ...]:
        return ("its end is lacking",)


def leaking() -> list[AgentState]:
    """Half an hour: a leak from 600 s on, memory refused from 1200 s on."""
    nothing: dict[str, Any] = {"device": None, "processes": (), "waterfalls": (), "driver_calls": None}
    states = []
    for at in range(0, 1800, 5):
        leaked = max(0, at - 600)
        pool = make_pool(
            capacity=5000,
            held=500 + leaked,
            orphaned=leaked,
            empty=4500 - leaked,
            cached_idle=0,
            over_freed=0,
            delayed=0,
            deferred=0,
            pinned=0,
        )
        here = engine(max(0, at - 1200), pool=pool, hooks=None, members=(), workers_expected=None)
        detail = replace(here.detail, pools=None, pins=None, delayed=None, leaks=None, speculation=None, tenants=None)
        states.append(state(at, engines=(replace(here, detail=detail, frontends_expected=None),), **nothing))
    return states


def test_a_history_by_two_policies() -> None:
    feed: Feed = Given(leaking(), (label(600),))
    result = run([Named("mine", DEFAULT), Named("textbook", TEXTBOOK)], [feed])
    (history,) = result.histories
    assert (history.name, history.states, history.watched_seconds, history.engines) == ("night", 360, 1795.0, ("m",))
    assert history.began == WALL
    assert "refused" in history.harm
    mine, textbook = history.outcomes
    leak = next(each for each in mine.episodes if each.kind == "kv_orphan")
    assert WALL + 600 < leak.confirmed_at < WALL + 630
    assert leak.harm is not None
    assert (leak.harm.what, leak.harm.at) == ("refused", WALL + 1205)
    assert leak.lead_seconds == WALL + 1205 - leak.confirmed_at
    assert leak.expected is True
    assert mine.found is not None
    (hit,) = mine.found
    assert (hit.delay_seconds, hit.lead_seconds) == (leak.confirmed_at - WALL - 600, leak.lead_seconds)
    first_total, second_total = result.totals
    assert (first_total.policy, first_total.hits, first_total.misses, first_total.false) == ("mine", 1, 0, 0)
    assert first_total.pages_per_day == pytest.approx(first_total.pages * 86_400 / 1795)
    assert second_total.profile == "textbook"
    assert history.comparison is not None
    assert leak in [pair.first for pair in history.comparison.both]
    assert len(history.comparison.both) + len(history.comparison.only_second) == len(textbook.episodes)
    assert result.remarks == ("its end is lacking",)


def test_several_histories_are_judged_apart_and_added_up() -> None:
    states = leaking()
    result = run([Named("default", DEFAULT)], [Given(states[:100]), Given(states[100:])])
    assert [history.states for history in result.histories] == [100, 260]
    assert result.watched_seconds == sum(history.watched_seconds for history in result.histories)
    assert result.totals[0].hits is None  # nobody says what was wrong
    assert run([Named("default", DEFAULT)], []).totals[0].pages_per_day is None


def test_an_agent_that_began_anew_judges_anew_and_a_clock_that_begins_anew_goes_on() -> None:
    states = leaking()[:200]  # to 1000 s; the leak is from 600 s on
    # The host was started anew: its clock, too, and a minute later everything goes on as before.
    after = [
        replace(each, at=each.at + 1060, monotonic=each.monotonic - MONO, started_at=WALL + 1000) for each in states
    ]
    back = replace(states[-1], monotonic=states[-1].monotonic - 100)  # one that came late: nobody looks at it
    result = run([Named("default", DEFAULT), Named("textbook", TEXTBOOK)], [Given([*states, back, *after])])
    (history,) = result.histories
    assert (history.states, history.gaps, history.gap_seconds) == (400, 1, 65.0)
    assert (history.began, history.ended) == (WALL, WALL + 2055)
    for outcome in history.outcomes:
        first_leak, second_leak = [each for each in outcome.episodes if each.kind == "kv_orphan"]
        assert (first_leak.resolved_at, first_leak.ending) == (WALL + 995, AGENT_ENDED)
        assert second_leak.confirmed_at == first_leak.confirmed_at + 1060
        assert second_leak.resolved_at is None


def test_what_an_agent_had_learned_is_known_to_every_policy() -> None:
    learned = Usuals(baselines=Judge().baselines())
    given: list[Any] = [learned, *leaking()[:5]]
    result = run([Named("default", DEFAULT), Named("textbook", TEXTBOOK)], [Given(given)])
    assert [history.states for history in result.histories] == [5]


def text_of(result: Backtest, width: int = 100) -> str:
    terminal = Terminal(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    terminal.print(render(result))
    return terminal.export_text()


def test_what_people_see() -> None:
    policy = Policy.model_validate({"growth": {"page_per_minute": 0.5}})
    result = run([Named("mine.yaml", policy), Named("textbook", TEXTBOOK)], [Given(leaking(), (label(600),))])
    text = text_of(result)
    for part in (
        "mine.yaml: growth.page_per_minute is 0.5, in the profile default 0.08",
        "pages a day, from 29 min",
        "faults found",
        "1 of 1",
        "Only by mine.yaml: nothing",
        "Only by textbook: ",
        "kv_orphan m: confirmed after ",
        "Harm: memory was refused ",
        " after the verdict.",
        "mine.yaml: kv_orphan of m from 11-14 22:23:20: found after ",
        "its end is lacking",
    ):
        assert part in text, part
    assert max(map(len, text.splitlines())) <= 100
    assert "There was nothing to judge." in text_of(run([Named("default", DEFAULT)], []))
    assert "By its labels nothing is wrong here." in text_of(run([Named("default", DEFAULT)], [Given(leaking(), ())]))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "other: at the same time, stood at the end"),
        ({"confirmed_at": MONO + 160, "paged_at": MONO + 160}, "other: 60 s later, stood at the end"),
        ({"paged_at": MONO + 400}, "other: at the same time, a page 5 min later, stood at the end"),
        ({"tier": "warn", "paged_at": None}, "other: at the same time, as warn, stood at the end"),
        (
            {"confirmed_at": MONO + 95, "resolved_at": MONO + 150, "ending": "engine gone"},
            "other: 5.0 s earlier, lasted 60 s (engine gone)",
        ),
    ],
)
def test_what_a_second_policy_says_otherwise(changes: dict[str, Any], told: str) -> None:
    one = episode(100)
    other = replace(one, **changes)
    result = run([Named("mine", DEFAULT), Named("other", DEFAULT)], [Given(leaking()[:2])])
    history = replace(result.histories[0], comparison=compare([one], [other]))
    lines = [each.strip() for each in text_of(replace(result, histories=(history,))).splitlines()]
    assert [each for each in lines if each.startswith("other: ")] == [told]


def test_a_long_list_is_cut_and_says_so_and_nothing_steers_the_terminal() -> None:
    result = run([Named("\x1b[2Jmine", DEFAULT)], [Given(leaking())])
    many = tuple(episode(at, sentence="\x1b[31mred\x07") for at in range(MOST + 3))
    (history,) = result.histories
    history = replace(history, name="\x1b]0;x\x07", outcomes=(replace(history.outcomes[0], episodes=many),))
    text = text_of(replace(result, histories=(history,), remarks=("\x1b[5m",)))
    assert "3 more: --json has all" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def bundle(path: Path, states: Iterable[AgentState], labelled: bool = True) -> Path:
    labels = (BundleLabel(kind="kv_orphan", subject=M, onset=MONO + 600),) if labelled else ()
    with Writer(path, Header(why="test", labelled=labelled, labels=labels)) as writer:
        for each in states:
            writer.state(each)
    return path


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["backtest", *arguments], standalone_mode=False)
    return (run_command(["backtest", *arguments]) if result.exception else result.exit_code), result.output


def test_the_command_on_bundles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = bundle(tmp_path / "one.kvtide", leaking())
    two = bundle(tmp_path / "two.kvtide", leaking()[:50], labelled=False)
    mine = tmp_path / "mine.yaml"
    mine.write_text("profile: textbook\n")
    code, output = command("--policy", str(mine), "--against", "default", "--from", str(one), str(two), "--json")
    assert code == 0
    result = msgspec.json.decode(output, type=Backtest)
    assert [history.name for history in result.histories] == [str(one), str(two)]
    assert [total.policy for total in result.totals] == ["mine.yaml", "default"]
    assert result.totals[1].hits == 1
    direct = run([Named("default", DEFAULT)], [Given(leaking(), (label(600),))])
    assert result.histories[0].outcomes[1].episodes == direct.histories[0].outcomes[0].episodes
    code, output = command(str(two))
    assert (code, "What would have been said: nothing" in output) == (0, True)
    one.write_bytes(one.read_bytes()[:-40])  # torn: what is there is judged, and what is not is said
    code, output = command(str(one))
    assert (code, f"{one.name}: it" in output.replace("\n", "")) == (0, True)
    capsys.readouterr()
    for arguments, exit_code, told in (
        ([], 2, "--from: a bundle or the URL of a Prometheus is needed"),
        (["--from", str(mine)], 1, "is not a kvtide bundle"),
        (["--from", str(tmp_path / "none")], 1, "No such file"),
        (["--from", str(one), "--policy", "none"], 2, "there is no such file, and no such profile"),
        (["--from", str(one), "--against", "default"], 2, "--against: default: is the policy itself"),
        (["--from", str(one), "--range", "3h"], 2, "--range: 3h: is for a Prometheus; a bundle is judged whole"),
        (["--from", "http://127.0.0.1:1"], 1, "no answer"),
        (["--from", "http://127.0.0.1:1", "--range", "2"], 2, "must be a duration such as"),
        (["--from", "http://127.0.0.1:1", "--step", "0s"], 2, "must be a duration such as"),
        (["--from", "http://127.0.0.1:1", "--metrics", "x"], 2, "must be one of auto, kvtide, engines"),
        (["--from", "gopher://a"], 2, "a Prometheus must be like http://127.0.0.1:9090"),
    ):
        assert command(*arguments)[0] == exit_code, arguments
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("kvtide: ")
        assert told in line


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15), ("0.5s", 0.5), ("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("2w", 1_209_600)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text, "--step") == seconds
    assert span_of(text, 2_000_000.0) == Span(2_000_000.0 - seconds, 2_000_000.0)


@pytest.mark.parametrize("text", ["", "s", "15", "-5s", "0s", "1h 30m", "1x", "1e3s", "9" * 20 + "d", "\u0661s", "1.s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--step: .*must be a duration"):
        seconds_of(text, "--step")


def test_spans() -> None:
    assert span_of("1000..2000.5", 0.0) == Span(1000.0, 2000.5)
    assert span_of("1000..now", 5000.0) == Span(1000.0, 5000.0)
    assert span_of("2023-11-14T22:13:20Z..2023-11-14T23:13:20+00:00", 0.0) == Span(WALL, WALL + 3600)
    assert shown(WALL) == "11-14 22:13:20"
    for wrong in ("5..4", "5..5", "..5", "5..", "a..b", "1..9999999999999", "0001-01-01..2", "5..6..7"):
        with pytest.raises(ConfigError, match=r"^--range: ") as caught:
            span_of(wrong, 10.0)
        assert len(str(caught.value).splitlines()) == 1
