"""``kvtide report``: where it writes, and what it says of a user's mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cli.app import run
from tests.unit.recordings import leaking, written


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return written(tmp_path / "night.kvtide", leaking(120, 60))


def test_writes_a_page_named_after_the_bundle(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(bundle.parent)
    assert run(["report", str(bundle)]) == 0
    assert capsys.readouterr().out == "The report is in night.html\n"
    assert (bundle.parent / "night.html").read_text().startswith("<!doctype html>")


def test_the_name_of_the_file_says_how_it_is_written(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = bundle.parent / "ticket.md"
    assert run(["report", str(bundle), "--out", str(out)]) == 0
    assert out.read_text().startswith("# Memory incident")
    capsys.readouterr()
    assert run(["report", str(bundle), "--out", "-", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == out.read_text()


def test_several_recordings_make_a_review(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = written(bundle.parent / "other.kvtide", leaking(60, 70))
    assert run(["report", str(bundle), str(other), "--out", "-", "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# Memory health review")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["BUNDLE", "--format", "pdf"], 2, "--format: 'pdf': must be html or markdown"),
        (["BUNDLE", "--out", "/x/night.pdf"], 2, "--out: '/x/night.pdf': ends in neither .html nor .md"),
        (["BUNDLE", "--hourly-price", "3"], 2, "--hourly-price: is for a review: add --range"),
        (["--range", "7d"], 2, "--range: needs a source"),
        (["BUNDLE", "--range", "yesterday"], 2, "--range: 'yesterday'"),
        (["missing.kvtide"], 1, "missing.kvtide"),
        (["BUNDLE", "--out", "/nowhere/at/all.html"], 1, "can't be written"),
        (["--url", "http://127.0.0.1:1"], 1, "127.0.0.1:1"),
    ],
)
def test_a_mistake_is_one_line(
    bundle: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    given = [str(bundle) if each == "BUNDLE" else each for each in arguments]
    assert run(["report", *given]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1
