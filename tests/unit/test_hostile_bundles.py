"""Bundles that somebody made to harm: bounded memory, one line that says what is wrong; sound twins are read."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent.backtest import compare as compare_module
from agent.backtest.compare import compare
from agent.backtest.harm import MAX_STRETCHES, HarmLog
from agent.bundle import format as bundle_format
from agent.bundle import limits
from agent.bundle.errors import BundleError
from agent.bundle.format import Change, Header, Label, Usuals, Writer, read
from agent.policy.types import DEFAULT
from agent.replay import fold, likeness
from agent.replay.bundles import replay_bundle
from agent.replay.fold import Fold
from agent.signals.baseline import Baselines
from agent.signals.kept import KeptTier, KeptTrack, Tracks
from agent.state import AgentState, Judgement
from agent.subject import Subject
from tests.unit.backtests import MONO, engine, episode, state
from tests.unit.builders import make_worker
from tests.unit.judgements import make_found
from tests.unit.node_builders import make_devices, make_gpu, make_host, make_process, make_scraped, make_scraped_engine
from tests.unit.recordings import MONOTONIC, moment, sound_engine, written

MIB = 1 << 20


def many_changes(path: Path, count: int, states: int = 2) -> Path:
    """A bundle that says ``count`` times behind each state that a verdict began, each time another."""
    with Writer(path, Header(why="a test", policy=DEFAULT.model_dump_json())) as writer:
        for second in range(states):
            writer.state(moment(second))
            for number in range(count):
                verdict = make_found(subject=Subject(scope="gpu", gpu=f"{second}-{number}"))
                writer.record(Change(monotonic=MONOTONIC + second, verdict=verdict))
    return path


def test_what_the_live_judge_said_is_not_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "MOST_SAID", 50)
    folding = Fold(DEFAULT)
    for _ in folding.judgements(read(many_changes(tmp_path / "a", 500)).records()):
        assert len(folding._said) <= 50
    monkeypatch.setattr(likeness, "MOST_KEYS", 120)
    replay = replay_bundle(many_changes(tmp_path / "b", 50, states=8))
    assert replay.live is not None
    assert (len(replay.live.only_live), replay.live.left_out) == (likeness.SHOWN + 1, 7 * 50 - 120)
    twin = replay_bundle(many_changes(tmp_path / "c", 5, states=8))
    assert twin.live is not None
    assert (len(twin.live.only_live), twin.live.left_out) == (likeness.SHOWN + 1, 0)


def test_memory_does_not_grow_with_what_was_said(tmp_path: Path) -> None:
    path = many_changes(tmp_path / "a", 100, states=300)
    replay_bundle(path)  # what is loaded once
    tracemalloc.start()
    replay_bundle(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 24 * MIB, "a change takes 2 kB, and there are 30,000"


SCRAPED = limits.SCRAPED
TOO_MUCH: dict[str, dict[str, Any]] = {
    "engines": {"engines": tuple(sound_engine(engine=f"m{n}") for n in range(limits.ENGINES + 1))},
    "engines' processes": {"engines": (sound_engine(members=(make_worker(),) * (limits.MEMBERS + 1)),)},
    "GPUs": {"device": make_devices(*(make_gpu(str(n)) for n in range(limits.GPUS + 1)))},
    "processes on the host": {"host": make_host(processes=(make_process(),) * (limits.PROCESSES + 1))},
    "pages' engines": {
        "scrape": make_scraped(*(make_scraped_engine(engine=f"m{n}") for n in range(limits.SCRAPED + 1)))
    },
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_state_of_more_than_any_node_has_is_refused(tmp_path: Path, what: str) -> None:
    path = written(tmp_path / "a", iter([replace(moment(1), **TOO_MUCH[what])]))
    with pytest.raises(BundleError, match=rf"^{path}: a record was never of an agent: it has [\d,]+ {what}, and"):
        replay_bundle(path)


LONG = "n" * (limits.NAME + 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"engines": (sound_engine(engine=LONG),)},
        {"engines": (sound_engine(members=(make_worker(role=LONG),)),)},
        {"device": make_devices(make_gpu("1", uuid=LONG))},
        {"host": make_host(processes=(make_process(role=LONG),))},
    ],
)
def test_names_without_end_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = written(tmp_path / "a", iter([replace(moment(1), **changes)]))
    with pytest.raises(BundleError, match="a name in it has 1,025 characters, and 1,024 is the most"):
        replay_bundle(path)
    with Writer(tmp_path / "b", Header(why="a test")) as writer:
        writer.record(Change(monotonic=0.0, verdict=make_found(kind=LONG)))
    with pytest.raises(BundleError, match="a name in it has"):
        replay_bundle(tmp_path / "b")


def test_engines_whose_names_never_come_again_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "MOST_NAMES", 100)

    def states(names: int) -> Iterator[AgentState]:
        return (moment(second, sound_engine(engine=f"m{second % names}")) for second in range(150))

    with pytest.raises(BundleError, match="more than 100 engines by their names"):
        replay_bundle(written(tmp_path / "a", states(101)))
    assert replay_bundle(written(tmp_path / "b", states(100))).states == 150


def test_labels_without_end_are_refused(tmp_path: Path) -> None:
    label = Label(kind="kv_orphan", onset=1.0, subject=Subject(scope="engine", engine="m"))
    most = bundle_format.MOST_LABELS
    with pytest.raises(BundleError, match="has 1,001 labels, and 1,000 are read"):
        read(written(tmp_path / "a", iter([moment(1)]), labelled=True, labels=(label,) * (most + 1)))
    assert (
        len(read(written(tmp_path / "b", iter([moment(1)]), labelled=True, labels=(label,) * most)).header.labels)
        == most
    )


def test_tracks_that_no_agent_has_kept_are_as_none(tmp_path: Path) -> None:
    points = [1e-300] * 50_000
    tier = KeptTier(times=points, values=points, beside=points, until=1e308)
    track = KeptTrack(instance=("i1", 1000), begun=-1e308, tiers=(tier,) * 4, said_seconds=(1e308, -1e308))
    tracks = Tracks(monotonic=0.0, tracks={"kv/m/hooks/held": track})
    with Writer(tmp_path / "a", Header(why="a test")) as writer:
        writer.record(Usuals(baselines=Baselines(), tracks=tracks))
        for second in range(100):
            writer.state(moment(second))
    replay = replay_bundle(tmp_path / "a")
    assert (replay.states, replay.errors) == (100, {})
    assert {each.kind for each in replay.verdicts} <= {"sensor_stale"}, "a hook of this engine is off"


def test_many_verdicts_are_compared_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = compare_module._before_end, Counter[str]()

    def counted(*both: Any) -> bool:
        asked["ends"] += 1
        return real(*both)

    monkeypatch.setattr(compare_module, "_before_end", counted)
    count = 2000
    first = [episode(100 * n, resolved_at=MONO + 100 * n + 20) for n in range(count)]
    second = [episode(100 * n + 50, resolved_at=MONO + 100 * n + 70) for n in range(count)]
    found = compare(first, second)
    assert (len(found.both), len(found.only_first), len(found.only_second)) == (0, count, count)
    assert asked["ends"] < 5 * count
    assert len(compare(first, first).both) == count


def test_stretches_of_harm_are_bounded_and_found_by_their_times() -> None:
    log = HarmLog()
    for second in range(0, 40_000, 100):
        log.take(state(second, engines=(engine(refused=second),)), Judgement(at=0.0), MONO + second)
    assert log.counts() == {"refused": 399}
    harm = log.first("m", MONO + 20_050, None)
    assert harm is not None
    assert harm.at == MONO + 20_100
    assert log.first("m", MONO + 20_010, MONO + 20_090) is None
    log._count = MAX_STRETCHES
    for name in range(10):
        log._add((f"x{name}", "refused"), 0.0, 0.0)
    assert len(log._stretches) == 1
