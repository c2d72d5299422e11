"""``kvtide canary`` on recordings: its exit code is its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli.app import run
from agent.state import AgentState
from engine_hooks.detail import Detail, Histogram
from tests.unit.builders import make_pool
from tests.unit.details import make_tenant, make_work
from tests.unit.recordings import moment, sound_engine, written

SECONDS = 400
BOUNDS = (0.5, 1.0, 2.0, 5.0)


def serving(*, slow: int = 0, failed: int = 0, leaked: int = 0) -> Iterator[AgentState]:
    """Ten requests a second; of each second's ``slow`` take up to 5 s and ``failed`` end by an error."""
    for second in range(SECONDS):
        done = 10 * second
        told = {"preempted_total": 0, "requests_total": done, "generated_tokens_total": 100 * done}
        histogram = Histogram(bounds=BOUNDS, counts=(0, done - slow * second, 0, slow * second, 0), sum=float(done))
        ended = {"finished": done - failed * second, "error": failed * second}
        tenant = make_tenant(ended_total=ended, **told)
        detail = Detail(monotonic=50.0, work=make_work(request_seconds=histogram), tenants=(tenant,))
        pool = make_pool(orphaned=leaked if second > 100 else 0, over_freed=0)
        yield moment(second, sound_engine(detail=detail, pool=pool, steps=100 * second, running=0, waiting=0))


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return written(tmp_path / "baseline.kvtide", serving())


def asked(baseline: Path, candidate: Path, stage: int, *more: str) -> int:
    return run(["canary", "--baseline", str(baseline), "--candidate", str(candidate), "--stage", str(stage), *more])


@pytest.mark.parametrize(
    ("fault", "stage", "answer"),
    [
        ({}, 100, "At 100 % the candidate may go on: all 6 gates up to 100 % were passed."),
        ({"leaked": 40}, 10, "the candidate leaks: kv_orphan"),
        ({"slow": 1}, 10, "may go on"),
        ({"slow": 1}, 30, "the candidate's P99 is 4.7 s, 2.0 s allowed"),
        ({"failed": 1}, 30, "may go on"),
        ({"failed": 1}, 100, "10.0% of the candidate's requests ended by an error"),
    ],
)
def test_the_exit_code_is_the_answer(
    baseline: Path, capsys: pytest.CaptureFixture[str], fault: dict[str, int], stage: int, answer: str
) -> None:
    candidate = written(baseline.parent / "candidate.kvtide", serving(**fault))
    assert asked(baseline, candidate, stage) == (0 if "may go on" in answer else 1)
    assert answer in " ".join(capsys.readouterr().out.split())


def test_json_has_the_gates_and_both_sides(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(baseline, baseline, 30, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"]["passed"] is True
    assert told["candidate"]["ended"] == 10 * (SECONDS - 1)


def test_too_short_a_look_does_not_pass(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(baseline, baseline, 10, "--least-watched", "1h") == 1
    assert "watched for 6 min only" in " ".join(capsys.readouterr().out.split())


def test_a_stage_that_there_is_not_is_one_line(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(baseline, baseline, 50) == 2
    assert capsys.readouterr().err == "kvtide: --stage: 50: must be one of 10, 30, 100\n"
