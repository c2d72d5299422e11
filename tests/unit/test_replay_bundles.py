"""A replay says what the live agent said, of what it recorded; and what another policy would have said."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from agent import episodes
from agent.bundle.format import Change, Header, Label, Usuals, Writer, read
from agent.faces.terminal import LEAST_COLUMNS, Terminal
from agent.judge import Judge
from agent.policy.types import DEFAULT, TEXTBOOK
from agent.recorder.store import Store
from agent.recorder.triggers import Triggers
from agent.replay import likeness
from agent.replay.bundle_text import render
from agent.replay.bundles import AGENT_ENDED, POLICY_OF_BUNDLE, POLICY_UNREADABLE, BundleReplay, replay_bundle
from agent.replay.fold import Fold
from agent.signals.baseline import Baselines, Usual
from agent.state import AgentState, Judgement
from agent.subject import Subject
from agent.verdicts.kv_stall import KvStall
from tests.unit.builders import make_state
from tests.unit.judgements import make_found
from tests.unit.recordings import AT, MONOTONIC, leaking, moment, written

POLICY = DEFAULT.model_dump_json()
SECONDS = 240


def recorded(folder: Path, states: Iterable[AgentState]) -> tuple[Path, list[Judgement]]:
    """Judge and record ``states`` as the agent does; return a bundle of them and what was said."""
    header = Header(why="flight recorder", host="node", policy=POLICY)
    store = Store(folder, header, full_seconds=1800.0, coarse_seconds=86400.0, max_bytes=64 << 20)
    judge, said = Judge(), []
    for state in states:
        said.append(judge.look(state))
        store.take(state, said[-1], None)
    path = store.bundle(3600.0, "asked").rename(folder / "asked.kvtide")
    store.close(b"")
    return path, said


def shown(replay: BundleReplay, width: int = LEAST_COLUMNS) -> str:
    console = Terminal(file=io.StringIO(), width=width, color_system=None)
    console.print(render(replay))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return " ".join(text.split())


def busy_node() -> Iterable[AgentState]:
    """Everything that the builders can say, a second apart: many verdicts begin, change and end."""
    for second in range(60):
        yield make_state(at=AT + second, monotonic=MONOTONIC + second)
    yield from list(leaking(SECONDS, 90, 180))[60:]


@pytest.mark.parametrize("states", [lambda: leaking(SECONDS, 60, 120), busy_node])
def test_the_replay_says_what_live_said(tmp_path: Path, states: object) -> None:
    path, live = recorded(tmp_path, states())  # type: ignore[operator]
    again = [judgement for _, judgement in Fold(DEFAULT).judgements(read(path).records())]
    assert any(judgement.verdicts for judgement in live)
    assert [each.verdicts for each in again] == [each.verdicts for each in live]
    assert again == live, "signals and scores, too"


def test_what_is_told_of_it(tmp_path: Path) -> None:
    path, live = recorded(tmp_path, leaking(SECONDS, 60, 120))
    replay = replay_bundle(path)
    (life,) = [each for each in replay.verdicts if each.kind == "kv_orphan"]
    (last,) = [each for each in live[110].verdicts if each.kind == "kv_orphan"]
    assert (life.subject, life.sentence, life.evidence) == (last.subject, last.sentence, last.evidence)
    assert (life.suspected_at, life.confirmed_at) == (last.since, last.changed)
    assert life.resolved_at == AT + 120
    assert (replay.states, replay.began, replay.ended) == (SECONDS, AT, AT + SECONDS - 1)
    assert (replay.agents, replay.policy, replay.torn) == (1, POLICY_OF_BUNDLE, "")
    assert replay.live is not None
    assert (replay.live.only_live, replay.live.only_replay, replay.live.before) == ((), (), 0)
    assert replay.live.same >= 3
    text = shown(replay)
    assert "kv_orphan m suspected 2023-11-14 22:14:20 UTC, confirmed 2023-11-14 22:14:23 UTC, resolved" in text
    assert life.sentence in text
    assert life.remedy in text
    assert f"As the live agent said: all {replay.live.same} changes of verdicts are the same." in text


def test_where_both_say_nothing_that_is_told(tmp_path: Path) -> None:
    path, _ = recorded(tmp_path, leaking(30, 30))
    assert "The live agent had no change of a verdict either." in shown(replay_bundle(path))


def test_another_policy_is_not_compared_with_what_live_said(tmp_path: Path) -> None:
    path, _ = recorded(tmp_path, leaking(SECONDS, 60, 120))
    replay = replay_bundle(path, TEXTBOOK, "textbook")
    assert (replay.policy, replay.live) == ("textbook", None)
    assert "policy: textbook" in shown(replay)


def test_what_only_one_says_is_told(tmp_path: Path) -> None:
    judge, triggers = Judge(), Triggers()
    with Writer(tmp_path / "a", Header(why="a test", policy=POLICY)) as writer:
        for number, state in enumerate(leaking(60, 20)):
            writer.state(state)
            changes = triggers.changes(state, judge.look(state))
            if number == 30:
                changes = (Change(monotonic=state.monotonic, verdict=make_found()),)
            for change in changes:
                if change.verdict.phase != "confirmed" or change.verdict.kind != "kv_orphan":
                    writer.record(change)
    replay = replay_bundle(tmp_path / "a")
    assert replay.live is not None
    assert replay.live.only_live == ("gpu_lost GPU 1: confirmed",)
    assert replay.live.only_replay == ("kv_orphan m: confirmed",)
    text = shown(replay)
    assert "Only live: gpu_lost GPU 1: confirmed." in text
    assert "Only here: kv_orphan m: confirmed." in text


def test_what_stood_before_is_not_compared(tmp_path: Path) -> None:
    with Writer(tmp_path / "a", Header(why="a test", policy=POLICY)) as writer:
        subject = Subject(scope="engine", engine="m")
        stood = make_found(kind="kv_orphan", subject=subject)
        writer.record(Change(monotonic=MONOTONIC, verdict=stood, standing=True))
        for state in leaking(60, 0):
            writer.state(state)
    replay = replay_bundle(tmp_path / "a")
    assert replay.live is not None
    assert replay.live.before == 1
    assert "kv_orphan m: confirmed" not in replay.live.only_replay
    assert "1 verdict stood before the recording began" in shown(replay)


def test_states_a_minute_apart_are_judged_and_not_compared(tmp_path: Path) -> None:
    states = [moment(60 * number) for number in range(20)]
    with Writer(tmp_path / "a", Header(why="a test", policy=POLICY)) as writer:
        for state in states:
            writer.state(state)
            writer.record(Change(monotonic=state.monotonic, verdict=make_found()))
    replay = replay_bundle(tmp_path / "a")
    assert replay.states == 20
    assert replay.live is not None
    assert (replay.live.same, replay.live.only_live) == (0, ())


def test_an_agent_that_was_restarted_judges_anew(tmp_path: Path) -> None:
    first = list(leaking(60, 10))
    second = [
        msgspec.structs.replace(state, at=state.at + 100, monotonic=state.monotonic - 40_000, started_at=AT + 90)
        for state in leaking(60, 10)
    ]
    path = written(tmp_path / "a", iter(first + second))
    replay = replay_bundle(path)
    assert replay.agents == 2
    leaks = [life for life in replay.verdicts if life.kind == "kv_orphan"]
    assert [(life.confirmed_at, life.resolved_at, life.ending) for life in leaks] == [
        (AT + 13, None, AGENT_ENDED),
        (AT + 113, None, ""),
    ]
    text = shown(replay)
    assert "not seen to end: the agent ended" in text
    assert "stands at the end (for 49 s)" in text
    assert "2 agents recorded it, one after the other" in text


def test_what_had_been_learned_is_known_again(tmp_path: Path) -> None:
    usual = Usual(value=800.0, count=40)
    with Writer(tmp_path / "a", Header(why="a test")) as writer:
        writer.record(Usuals(baselines=Baselines(engines={"m": {"context": usual}})))
        writer.state(moment(0))
    fold = Fold(DEFAULT)
    assert len(list(fold.judgements(read(tmp_path / "a").records()))) == 1
    assert fold._judge is not None
    assert fold._judge.baselines().engines["m"]["context"].value == 800.0


def test_states_out_of_order_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path / "a", iter([moment(0), moment(5), moment(3), moment(5), moment(6)]))
    replay = replay_bundle(path)
    assert (replay.states, replay.passed_over) == (3, 2)
    assert "2 states out of order were passed over." in shown(replay)


def test_a_torn_one_an_empty_one_and_one_with_labels(tmp_path: Path) -> None:
    label = Label(kind="kv_orphan", onset=MONOTONIC + 3, subject=Subject(scope="engine", engine="m"))
    torn = written(tmp_path / "torn", leaking(20, 100), labelled=True, labels=(label,))
    torn.write_bytes(torn.read_bytes()[:-15])
    text = shown(replay_bundle(torn))
    assert "The file is not whole: its last frame is cut off. What comes before that is judged." in text
    assert "What is known to be wrong in it: kv_orphan m." in text
    assert "No verdict was confirmed." in text
    sound = replay_bundle(written(tmp_path / "sound", leaking(5, 100), labelled=True))
    assert "What is known to be wrong in it: nothing." in shown(sound)
    assert "There is no state in it" in shown(replay_bundle(written(tmp_path / "empty", iter(()))))


@pytest.mark.parametrize("policy", ["{}", '{"growth": {"of_tomorrow": 1}}', "no json"])
def test_a_policy_that_can_not_be_read_is_said(tmp_path: Path, policy: str) -> None:
    replay = replay_bundle(written(tmp_path / "a", leaking(5, 100), policy=policy))
    assert replay.policy == (POLICY_OF_BUNDLE if policy == "{}" else POLICY_UNREADABLE)
    assert f"policy: {replay.policy}" in shown(replay)


def test_hostile_names_steer_no_terminal(tmp_path: Path) -> None:
    path = written(tmp_path / "a", leaking(3, 100), host="\x1b[2Jhost", why="a\rb")
    assert "\x1b" not in shown(replay_bundle(path))


def test_a_detector_that_fails_ends_no_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(KvStall, "judge", fail)
    replay = replay_bundle(written(tmp_path / "a", leaking(20, 5)))
    assert replay.errors == {"kv_stall": 20}
    assert [life.kind for life in replay.verdicts if life.kind == "kv_orphan"] == ["kv_orphan"]
    assert "kvtide itself failed at kv_stall: please report this." in shown(replay)


def test_what_does_not_fit_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes, "MAX_EPISODES", 0)
    replay = replay_bundle(written(tmp_path / "a", leaking(20, 5)))
    assert (replay.verdicts, replay.left_out > 0) == ((), True)
    assert "are not shown." in shown(replay)


def test_differences_are_told_in_a_bounded_number() -> None:
    comparison = likeness.Comparison()
    for number in range(30):
        comparison.state(1, float(number), own=True)
        comparison.said([Change(monotonic=float(number), verdict=make_found())])
    found = comparison.likeness()
    assert len(found.only_live) == likeness.SHOWN + 1
    assert found.only_live[-1] == "and 20 more"
