"""What counts as found, implied, false and as a false page."""

from __future__ import annotations

from random import Random

import pytest

from agent.episodes import Episode
from agent.state import Tier, Verdict
from agent.subject import Subject
from bench.corpus.scenario import Label, Made, Recipe, Scenario
from bench.score.episodes import Heard, patient
from bench.score.match import judged, matches
from bench.score.tally import misses, tally

ENGINE = Subject(scope="engine", engine="m")
FAULT = Label("kv_stall", 1_000.0, 2_000.0, ENGINE, 60.0, frozenset({"kv_pressure"}))


def made(_: Random) -> Made:
    return Made(iter(()))


def heard(*episodes: Episode, labels: tuple[Label, ...] = (FAULT,), family: str = "pressure") -> Heard:
    scenario = Scenario(Recipe("r", family, "kv_stall", made), "evaluation", 0)
    return Heard(scenario, labels, 0.0, 10_000.0, 10, {"default": list(episodes)})


def said(kind: str, at: float, tier: Tier = "page", subject: Subject = ENGINE) -> Episode:
    verdict = Verdict(
        kind=kind, phase="confirmed", since=at, changed=at, sentence="It stands.", remedy="", evidence={},
        subject=subject, tier=tier,
    )  # fmt: skip
    paged = at if tier == "page" else None
    return Episode(kind, subject, at, at, verdict, verdict, tier, told_at=at, paged_at=paged)


def test_a_verdict_in_time_finds_the_fault() -> None:
    outcome = judged(heard(said("kv_stall", 1_030.0)), "default")
    assert outcome.delays == [(FAULT, 30.0)]
    assert not outcome.false


@pytest.mark.parametrize("at", [999.0, 2_121.0])
def test_too_early_or_too_late_finds_nothing(at: float) -> None:
    outcome = judged(heard(said("kv_stall", at)), "default")
    assert outcome.delays == [(FAULT, None)]
    assert len(outcome.false) == (at < 1_000)


def test_somebody_else_is_false_and_no_page_in_negative_time() -> None:
    outcome = judged(heard(said("kv_stall", 1_030.0, subject=Subject(scope="engine", engine="n"))), "default")
    assert [each.kind for each in outcome.false] == ["kv_stall"]
    assert not outcome.false_pages


def test_what_the_fault_implies_is_neither() -> None:
    outcome = judged(heard(said("kv_stall", 1_030.0), said("kv_pressure", 2_500.0)), "default")
    assert not outcome.false
    assert len(judged(heard(said("kv_pressure", 3_000.0)), "default").false) == 1


@pytest.mark.parametrize(
    ("gap", "due"),
    [
        ((990.0, 1_050.0), 110.0),  # the onset lies in it
        ((1_040.0, 1_100.0), 120.0),
        ((1_070.0, 1_500.0), 60.0),  # somebody should have known before
        ((900.0, 990.0), 60.0),
        ((1_040.0, 1_044.0), 60.0),  # no gap
    ],
)
def test_what_nobody_can_see_is_due_later(gap: tuple[float, float], due: float) -> None:
    times = [float(t) for t in range(800, 2_000) if not gap[0] < t < gap[1]]
    (label,) = patient((FAULT,), times)
    assert (label.onset, label.due_seconds) == (FAULT.onset, due)


def test_a_page_in_negative_time_is_counted_apart() -> None:
    outcome = judged(heard(said("oom", 5_000.0), said("oom", 6_000.0, "warn")), "default")
    assert len(outcome.false) == 2
    assert [each.paged_at for each in outcome.false_pages] == [5_000.0]


def test_negative_time_leaves_out_faults_and_their_wake() -> None:
    assert judged(heard(), "default").negative_seconds == 10_000.0 - (2_000.0 - 1_000.0) - 900.0
    assert judged(heard(labels=()), "default").negative_seconds == 10_000.0


def test_subjects_match_in_what_the_label_says() -> None:
    assert matches(Subject(scope="process", engine="m"), Subject(scope="process", engine="m", process="worker/1"))
    assert not matches(Subject(scope="gpu", gpu="0"), Subject(scope="gpu", gpu="1"))


def test_sums_hold_or_miss_the_targets() -> None:
    right = tally([judged(heard(said("kv_stall", 1_030.0)), "default")] * 3)
    assert all(right.targets().values())
    wrong = tally([judged(heard(said("oom", 5_000.0)), "default")])
    assert wrong.targets() == {
        "precision >= 0.99": False,
        "recall >= 0.97": False,
        "false pages per node-week < 1": False,
        "orphan kinds exact": True,
    }
    assert wrong.kinds["oom"].pages == 1


def test_a_false_orphan_is_not_exact_where_there_are_hooks() -> None:
    orphan = said("kv_orphan", 5_000.0, "warn")
    assert not tally([judged(heard(orphan), "default")]).targets()["orphan kinds exact"]
    assert tally([judged(heard(orphan, family="pages"), "default")]).targets()["orphan kinds exact"]


def test_misses_are_told_with_their_sentences() -> None:
    lines = misses([judged(heard(said("kv_stall", 1_100.0), said("oom", 5_000.0)), "default")])
    assert lines[0].startswith("LATE ")
    assert lines[1].startswith("PAGED")
    assert lines[1].endswith("It stands.")
