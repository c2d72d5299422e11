"""The judge when something of its own fails, and what it holds of what it can't see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from agent import judge as judging
from agent.judge import HELD_SECONDS, Judge
from agent.judging import LiveJudge
from agent.policy.types import DEFAULT
from agent.signals.allocators import AllocatorsTracker
from agent.signals.engine import EngineTracker
from agent.signals.gpus import GpusTracker
from agent.signals.hosts import HostsTracker
from agent.signals.types import EngineSignals, Reading
from agent.state import AgentState, Judgement, Tier, Verdict
from agent.subject import Scope, Subject
from agent.verdicts.base import Facts, Finding, View, advance
from agent.verdicts.endings import ENGINE_GONE, OUT_OF_SIGHT, ending_of
from agent.verdicts.kv_orphan import KvOrphan
from engine_hooks.detail import Detail
from tests.unit import timeline
from tests.unit.details import make_delayed, make_detail
from tests.unit.recordings import leaking, moment, sound_engine

GPU = Subject(scope="gpu", gpu="0")


class Failing:
    """Finds an engine guilty at first, and fails from then on."""

    kind = "kv_stall"
    confirm_seconds = clear_seconds = 0.0

    def __init__(self) -> None:
        self.fails = False

    def judge(self, facts: Facts) -> Finding | None:
        if self.fails:
            raise ZeroDivisionError("of ours")
        return Finding("It stands still.", "", {})


class FailingNode:
    """The same for a node."""

    kind, of_absence = "sensor_stale", True
    confirm_seconds = clear_seconds = 0.0
    fails = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        yield GPU, Finding("It is old.", "", {})
        if self.fails:
            raise ZeroDivisionError("of ours")


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> tuple[Failing, FailingNode]:
    engine, node = Failing(), FailingNode()
    monkeypatch.setattr(judging, "DETECTORS", (engine, KvOrphan()))
    monkeypatch.setattr(judging, "NODE_DETECTORS", (node,))
    return engine, node


def kinds(verdicts: tuple[Verdict, ...]) -> list[tuple[str, str, bool]]:
    return [(each.kind, each.phase, each.held) for each in verdicts]


def test_a_detector_that_fails_costs_its_own_verdicts_alone(
    ours: tuple[Failing, FailingNode], caplog: pytest.LogCaptureFixture
) -> None:
    judge = LiveJudge(DEFAULT, None)
    states = list(leaking(10, 0))
    for state in states[:5]:
        judge.look(state)
    assert judge.errors == {}
    ours[0].fails = ours[1].fails = True
    said = [judge.look(state).verdicts for state in states[5:]]
    assert kinds(said[-1]) == [
        ("kv_stall", "confirmed", True),
        ("kv_orphan", "confirmed", False),
        ("sensor_stale", "confirmed", True),
    ]
    assert judge.errors == {"kv_stall": 5, "sensor_stale": 5}
    assert [record.message for record in caplog.records] == [
        "kv_stall can't be judged: please report this",
        "sensor_stale can't be judged: please report this",
    ]
    ours[0].fails = ours[1].fails = False
    assert kinds(judge.look(moment(11)).verdicts)[0] == ("kv_stall", "confirmed", False)


@pytest.mark.parametrize("which", [0, 1])
def test_elsewhere_the_first_failure_is_raised(ours: tuple[Failing, FailingNode], which: int) -> None:
    ours[which].fails = True
    with pytest.raises(ZeroDivisionError):
        Judge().look(moment(0))


def test_signals_and_scores_that_fail_leave_verdicts_as_they_are(
    ours: tuple[Failing, FailingNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = LiveJudge(DEFAULT, None)
    judge.look(moment(0))

    def fail(*_: object) -> object:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(judging, "scores", fail)
    monkeypatch.setattr(judge._judge._tracker, "take", fail)
    judgement = judge.look(moment(1))
    assert judge.errors == {"signals": 1, "scores": 1}
    assert kinds(judgement.verdicts) == [("kv_stall", "confirmed", False), ("sensor_stale", "confirmed", False)]
    assert (judgement.scores, judgement.signals.engines) == ((), ())


def test_what_can_not_be_seen_is_held_for_a_while_and_then_let_go(ours: tuple[Failing, FailingNode]) -> None:
    judge = Judge()
    for state in leaking(5, 0):
        judge.look(state)

    def silent(second: float) -> AgentState:
        return moment(second, sound_engine(phase="silent", pool=None))

    assert ("kv_orphan", "confirmed", True) in kinds(judge.look(silent(6)).verdicts)
    for second in range(7, 4 + int(HELD_SECONDS)):
        judge.look(silent(second))
    assert ("kv_orphan", "confirmed", True) in kinds(judge.look(silent(4 + HELD_SECONDS)).verdicts)
    let_go = {each.kind: each for each in judge.look(silent(4.5 + HELD_SECONDS)).verdicts}["kv_orphan"]
    assert (let_go.phase, let_go.ending, let_go.held) == ("resolved", OUT_OF_SIGHT, False)


def test_what_fails_beside_the_detectors_costs_the_judgement_and_not_the_agent(
    ours: tuple[Failing, FailingNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = LiveJudge(DEFAULT, None)
    assert judge.look(moment(0)).verdicts != ()

    def fail(*_: object) -> object:
        raise ZeroDivisionError("of ours")

    with monkeypatch.context() as patched:
        patched.setattr(judge._judge._presence, "take", fail)
        judgement = judge.look(moment(1))
    assert (judgement.at, judgement.verdicts) == (moment(1).at, ())
    assert judge.errors == {"node": 1}
    assert judge.look(moment(2)).verdicts != ()


def test_what_an_engine_does_not_tell_any_more_is_held() -> None:
    late = make_detail(delayed=(make_delayed(expired=5, oldest_seconds=900.0, lease_seconds=480.0),), leaks=())

    def node(t: float, **told: Any) -> AgentState:
        known: dict[str, Any] = {"pool": timeline.pool(orphaned=3), "detail": late} | told
        return timeline.state(t, engines=(timeline.engine(**known),))

    def of_blocks(judgement: Judgement) -> list[tuple[str, str, bool]]:
        return [each for each in kinds(judgement.verdicts) if each[0] in ("kv_orphan", "kv_delayed_free")]

    judge = Judge()
    for t in range(10):
        judge.look(node(t))
    stands = [("kv_orphan", "confirmed", False), ("kv_delayed_free", "confirmed", False)]
    assert of_blocks(judge.look(node(10))) == stands
    held = [(kind, phase, True) for kind, phase, _ in stands]
    assert of_blocks(judge.look(node(11, pool=timeline.pool(orphaned=None), detail=None))) == held
    assert of_blocks(judge.look(node(12))) == stands
    gone = node(13, pool=timeline.pool(orphaned=0), detail=make_detail(delayed=(), leaks=(), pools=()))
    assert {phase for _, phase, _ in of_blocks(judge.look(gone))} == {"resolved"}


class OfProcess:
    """Finds a process of engine m guilty, and its memory on the host, as long as the engine that it saw first runs."""

    of_absence = False
    confirm_seconds, clear_seconds = 0.0, 600.0

    def __init__(self, kind: str, scope: Scope) -> None:
        self.kind = kind
        self._subject = Subject(scope=scope, engine="m", process="worker/0")

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        if any(each.instance == "first" for each in view.state.engines):
            yield self._subject, Finding("It grows.", "", {})


@pytest.mark.parametrize(
    ("kind", "scope", "closed"),
    [("allocator_growth", "process", True), ("host_growth", "host", True), ("oom", "process", False)],
)
def test_what_a_process_had_ends_with_its_engine(
    monkeypatch: pytest.MonkeyPatch, kind: str, scope: Scope, closed: bool
) -> None:
    monkeypatch.setattr(judging, "DETECTORS", ())
    monkeypatch.setattr(judging, "NODE_DETECTORS", (OfProcess(kind, scope),))
    judge = Judge()
    for t in range(5):
        judge.look(timeline.state(t, engines=(timeline.engine(instance="first"),)))
    (found,) = judge.look(timeline.state(5, engines=(timeline.engine(instance="second"),))).verdicts
    assert (found.phase, found.ending) == (("resolved", ENGINE_GONE) if closed else ("confirmed", ""))


def test_a_gap_in_which_nothing_is_seen_is_passed_over_once() -> None:
    judge = Judge()
    for t in range(20):
        judge.look(orphaned(t, 0))
    judge.look(orphaned(20, 3))
    judge.look(orphaned(200, None))
    judge.look(orphaned(201, 3))
    for t in (202, 203):
        judge.look(orphaned(t, 3))
    assert [each.phase for each in judge.look(orphaned(204.5, 3)).verdicts if each.kind == "kv_orphan"] == ["confirmed"]


def orphaned(t: float, blocks: int | None) -> AgentState:
    """An engine with so many orphaned blocks; one that says nothing where that is None."""
    if blocks is None:
        return timeline.state(t, engines=(timeline.engine(phase="silent", pool=None),))
    return timeline.state(t, engines=(timeline.engine(pool=timeline.pool(orphaned=blocks)),))


@pytest.mark.parametrize("silent", [False, True], ids=["no state", "silent"])
def test_a_time_of_which_nothing_is_known_confirms_no_suspicion(silent: bool) -> None:
    judge = Judge()
    for t in range(20):
        judge.look(orphaned(t, 0))
    assert [each.phase for each in judge.look(orphaned(20, 3)).verdicts] == ["suspect"]
    if silent:
        for t in range(21, 500):
            judge.look(orphaned(t, None))
    assert [each.phase for each in judge.look(orphaned(500, 3)).verdicts if each.kind == "kv_orphan"] == ["suspect"]
    for t in (501, 502):
        judge.look(orphaned(t, 3))
    assert [each.phase for each in judge.look(orphaned(503.5, 3)).verdicts if each.kind == "kv_orphan"] == ["confirmed"]
    judge.look(orphaned(2000, 3))  # and neither does it end what stands
    assert [each.phase for each in judge.look(orphaned(2001, 3)).verdicts if each.kind == "kv_orphan"] == ["confirmed"]


def test_what_was_confirmed_as_a_warning_must_hold_before_it_gets_somebody_up() -> None:
    def found(tier: Tier) -> Finding:
        return Finding("It grows.", "", {}, tier)

    track = advance(None, found("warn"), 0.0, 10.0)
    for now in range(1, 11):
        track = advance(track, found("warn"), now, 10.0)
    assert track is not None
    assert (track.phase, track.finding.tier) == ("confirmed", "warn")
    once = advance(advance(track, found("page"), 11.0, 10.0), found("warn"), 12.0, 10.0)
    assert once is not None
    assert (once.finding.tier, once.raised) == ("warn", None), "one sample is not enough"
    for now in range(13, 24):
        assert once is not None
        assert once.finding.tier == "warn"
        once = advance(once, found("page"), now, 10.0)
    assert once is not None
    assert (once.phase, once.finding.tier, once.began) == ("confirmed", "page", 0.0)


@pytest.mark.parametrize("why", ["no state", "not seen", "not there"])
def test_what_gets_worse_holds_for_no_longer_by_a_time_of_which_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    class Worse:
        kind, of_absence = "device_growth", False
        confirm_seconds, clear_seconds = 60.0, 600.0

        def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
            t = view.state.monotonic - timeline.MONOTONIC
            if t <= 100 or t == 300:
                yield GPU, Finding("It grows.", "", {}, "page" if t >= 100 else "warn")

    monkeypatch.setattr(judging, "DETECTORS", ())
    monkeypatch.setattr(judging, "NODE_DETECTORS", (Worse(),))
    judge, card = Judge(), timeline.gpu(40 * timeline.GIB)
    for t in range(101):
        judge.look(timeline.state(t, gpus=[card]))
    for t in range(101, 300):
        if why != "no state":
            judge.look(timeline.state(t, gpus=[card] if why == "not there" else None))
    (found,) = judge.look(timeline.state(300, gpus=[card])).verdicts
    assert (found.phase, found.tier) == ("confirmed", "warn"), "two samples are not a minute"


def test_one_engine_s_failing_signals_cost_no_other_s(monkeypatch: pytest.MonkeyPatch) -> None:
    take = EngineTracker.take

    def fails(self: EngineTracker, now: float, at: float, reading: Reading, detail: Detail | None) -> EngineSignals:
        if reading.engine == "bad":
            raise ValueError("broken")
        return take(self, now, at, reading, detail)

    monkeypatch.setattr(EngineTracker, "take", fails)
    failed: Counter[str] = Counter()
    judge = Judge(on_error=lambda name, _: failed.update([name]))
    both = (
        timeline.engine(engine="bad", instance="b"),
        timeline.engine(engine="good", instance="g", pool=timeline.pool(orphaned=200)),
    )
    for t in range(10):
        judgement = judge.look(timeline.state(float(t), engines=both))
    assert failed == {"signals/bad": 10}
    assert [each.engine for each in judgement.signals.engines] == ["good"]
    assert [(each.kind, each.subject.engine) for each in judgement.verdicts] == [("kv_orphan", "good")]


def test_what_an_engine_was_told_of_is_held_while_its_signals_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    leaking = (timeline.engine(pool=timeline.pool(orphaned=200)),)
    judge = Judge(on_error=lambda *_: None)
    for t in range(10):
        judge.look(timeline.state(float(t), engines=leaking))
    monkeypatch.setattr(EngineTracker, "take", _raise)
    (held,) = judge.look(timeline.state(10.0, engines=(timeline.engine(),))).verdicts
    assert (held.phase, held.held) == ("confirmed", True)


def _raise(*_: object) -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("part", [GpusTracker, HostsTracker, AllocatorsTracker])
def test_a_part_that_fails_costs_that_part_alone(part: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "take", _raise)
    failed: Counter[str] = Counter()
    judge = Judge(on_error=lambda name, _: failed.update([name]))
    judgement = judge.look(timeline.state(0.0, engines=(timeline.engine(),)))
    assert len(failed) == 1
    assert next(iter(failed)).startswith("signals:")
    assert [each.engine for each in judgement.signals.engines] == ["m"]


@pytest.mark.parametrize(
    ("kind", "back", "words"),
    [
        ("oom", True, "none in ten minutes"),
        ("engine_missing", True, "it is back"),
        ("engine_missing", False, "not missed any more: taken to have moved"),
        ("kv_pressure", True, "no longer so"),
    ],
)
def test_every_ending_has_its_word(kind: str, back: bool, words: str) -> None:
    assert ending_of(kind, back=back) == words


def test_a_fault_that_has_gone_says_so() -> None:
    judge = Judge()
    for t in range(20):
        verdicts = judge.look(
            timeline.state(float(t), engines=(timeline.engine(pool=timeline.pool(orphaned=200 if t < 10 else 0)),))
        ).verdicts
    assert [(each.phase, each.ending) for each in verdicts] == [("resolved", "all of it was given back")]


def test_an_inferred_leak_that_requests_hide_is_not_said_to_be_given_back() -> None:
    judge = Judge()
    idle = timeline.page(usage_ratio=0.3, running=0)
    busy = timeline.page(usage_ratio=0.5, running=4, generation_tokens=20_000)
    for t in range(700):
        judge.look(timeline.state(float(t), pages=[idle]))
    (found,) = [each for each in judge.look(timeline.state(700.0, pages=[busy])).verdicts if each.kind == "kv_orphan"]
    assert (found.phase, found.ending) == ("resolved", OUT_OF_SIGHT)


def test_an_inferred_leak_is_held_while_its_page_has_no_number() -> None:
    judge = Judge()
    for t in range(700):
        judge.look(timeline.state(float(t), pages=[timeline.page(usage_ratio=0.3, running=0)]))
    none = timeline.page(usage_ratio=None, held_blocks=None, running=0)
    (found,) = [each for each in judge.look(timeline.state(700.0, pages=[none])).verdicts if each.kind == "kv_orphan"]
    assert (found.phase, found.held) == ("confirmed", True)
