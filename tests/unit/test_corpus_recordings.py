"""The parts of the corpus that are recorded: specs of the simulator, and bundles of a real engine."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from agent.bundle.format import Label, read
from agent.simulate.run import check
from agent.subject import Subject
from bench.corpus import play, served, simulated
from bench.corpus.scenario import Scenario
from tests.unit.builders import make_state

SUBJECT = Subject(scope="engine", engine="m")


@pytest.mark.parametrize(("kind", "style"), simulated.FAULTS)
def test_a_fault_s_spec_can_be_run_and_follows_from_the_seed(kind: str, style: str) -> None:
    for seed in range(5):
        spec = simulated.faulty(kind, style, Random(seed))
        check(spec)
        assert spec == simulated.faulty(kind, style, Random(seed))
        assert spec.faults[0].onset > 100
        assert simulated.path_of(spec) != simulated.path_of(simulated.faulty(kind, style, Random(seed + 100)))


@pytest.mark.parametrize(("group", "style"), simulated.HEALTHY)
def test_a_healthy_spec_can_be_run_and_has_no_fault(group: str, style: str) -> None:
    for seed in range(5):
        spec = simulated.healthy(simulated.GROUPS[group], style, Random(seed))
        check(spec)
        assert not spec.faults
        assert all(event.at < spec.seconds for event in spec.events)


def test_half_of_what_is_simulated_is_healthy() -> None:
    assert 2 * len(simulated.HEALTHY) >= len(simulated.FAULTS)  # each of them twice in the evaluation part


def chapter(label: Label | None) -> play.Chapter:
    return play.Chapter("leak under load", 10.0, 20.0, label)


def test_a_chapter_is_what_was_recorded_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "CACHE", tmp_path)
    path = play.path_of("tuning", "leak under load")
    states = [make_state(monotonic=float(t), at=1e9 + t) for t in range(5, 30)]
    label = Label(kind="kv_orphan", onset=14.0, subject=SUBJECT)
    play.write(path, chapter(label), states)
    made = served.made("leak under load", "tuning", Random(0))
    assert [state.monotonic for state in made.states] == [float(t) for t in range(10, 21)]
    assert [(each.kind, each.onset, each.ended, each.subject) for each in made.labels] == [
        ("kv_orphan", 14.0, None, SUBJECT)
    ]
    play.write(path, chapter(None), states)
    assert read(path).header.labelled
    assert not served.made("leak under load", "tuning", Random(0)).labels


def test_parts_and_chapters_lie_in_places_of_their_own() -> None:
    places = {play.path_of(part, name) for part in ("tuning", "evaluation") for name in play.CHAPTERS}  # type: ignore[arg-type]
    assert len(places) == 2 * len(play.CHAPTERS)


def test_what_is_there_is_not_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "CACHE", tmp_path)
    ran: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        ran.append(command[1:])
        for name in play.CHAPTERS:
            play.write(play.path_of("tuning", name), chapter(None), [])
        return served.subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(served.subprocess, "run", run)
    wanted = [Scenario(recipe, "tuning", 0) for recipe in served.recipes() if recipe.tuning]
    served.prepare(wanted)
    served.prepare(wanted)
    assert ran == ([["-m", "bench.corpus.play", "tuning"]] if wanted else [])
