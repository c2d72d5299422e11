"""Hostile and careless use: one line that says what and where, the right exit code, nothing lost and nothing left."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from agent.backtest.span import shown
from agent.bundle.errors import BundleError
from agent.bundle.format import Header, Label, Usuals, is_bundle, read
from agent.bundle.records import encoded
from agent.cli.app import run
from agent.cli.client import AgentClient
from agent.recorder import store
from agent.recorder.kept import usuals_in
from agent.recorder.store import Learned, Store
from agent.signals.baseline import Baselines
from agent.simulate.run import Spec, simulate
from agent.state import Judgement
from agent.subject import Subject
from tests.unit.recordings import leaking, moment, written

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


def line(capsys: pytest.CaptureFixture[str], code: int, *arguments: str | Path) -> str:
    assert run([str(each) for each in arguments]) == code
    (told,) = capsys.readouterr().err.splitlines()
    return told


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (f"{BOMB}use: {{warn_ratio: *h}}", "line 6: not valid YAML: more than 100,000 values"),
        ("use: &x {warn_ratio: *x}", "line 1: not valid YAML: an alias of what it stands in"),
        (f"serving: {{queue_warn: 0x{'f' * 9000}}}", "line 1: not valid YAML: too large a number"),
        (f"serving: {{queue_warn: {'9' * 9000}}}", "line 1: not valid YAML: too large a number"),
    ],
)
def test_a_policy_that_would_blow_up_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, why: str
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(content)
    assert line(capsys, 2, "policy", "check", path) == f"kvtide: {path}: {why}".replace(
        f"{path}: line", f"{path}: line"
    )


def test_a_pipe_that_nobody_writes_to_holds_up_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.yaml"
    os.mkfifo(path)
    assert line(capsys, 2, "policy", "check", path) == f"kvtide: {path}: not a regular file"


def test_aliases_that_repeat_little_are_right(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("serving: {queue_warn: &n 60, queue_page: *n}\n")
    assert run(["policy", "check", str(path)]) == 0


def test_of_many_mistakes_the_first_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("".join(f"{'k' * 900}{number}: 1\n" for number in range(20)))
    told = line(capsys, 2, "policy", "check", path)
    assert told.endswith("; and 12 more mistakes")
    assert len(told) < 5000


def test_a_policy_by_a_name_that_no_file_can_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = written(tmp_path / "a", leaking(3, 1))
    told = line(capsys, 2, "replay", bundle, "--policy", "a" * 5000)
    assert told.endswith("...: File name too long")
    told = line(capsys, 2, "policy", "show", "--profile", "")
    assert told == "kvtide: profile: '': must be one of default, latency, throughput, textbook"


def test_a_pipe_is_not_touched_to_see_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_bundle(tmp_path / "pipe")  # opening it would wait for a writer
    assert is_bundle(written(tmp_path / "a", leaking(1, 1)))


@pytest.mark.parametrize("changes", [{"at": 1e300}, {"at": -1.0}, {"monotonic": 1e12}, {"started_at": float("nan")}])
def test_states_outside_of_time_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, float]
) -> None:
    path = written(tmp_path / "a", iter([replace(moment(1), **changes)]))
    for command in ("replay", "backtest"):
        assert line(capsys, 1, command, path) == f"kvtide: {path}: a state's time is no time"


def test_labels_outside_of_time_are_refused(tmp_path: Path) -> None:
    label = Label(kind="kv_orphan", onset=float("nan"), subject=Subject(scope="engine", engine="m"))
    path = written(tmp_path / "a", leaking(3, 1), labelled=True, labels=(label,))
    with pytest.raises(BundleError, match="a label's time is no time"):
        read(path)
    assert read(written(tmp_path / "b", leaking(3, 1), labels=(replace(label, onset=1.0),))).header.labels


def test_times_that_no_calendar_has_are_shown_as_numbers() -> None:
    assert (shown(-1e12), shown(0.0)) == ("-1e+12 s", "01-01 00:00:00")


def test_what_a_bundle_says_of_itself_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a", leaking(3, 100), why="x\n\nNo verdict", host="\x1b[31m")
    assert run(["replay", str(path)]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "\nNo verdict," not in told


def test_a_backtest_tells_of_states_out_of_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a", iter(reversed(list(leaking(4, 100)))))
    assert run(["backtest", str(path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"{path}: 3 states out of order were passed over".replace(" ", "") in told.replace(" ", "")


def kept_in(folder: Path) -> Store:
    return Store(folder, Header(why="t"), full_seconds=60.0, coarse_seconds=600.0, max_bytes=64 << 20)


def take(kept: Store, seconds: Iterator[int] | range, learned: Learned | None = None) -> None:
    for second in seconds:
        kept.take(moment(second), Judgement(at=0.0), learned)


def test_what_is_none_of_ours_is_left_alone_and_recording_goes_on(tmp_path: Path) -> None:
    kept, precious = tmp_path / "kept", tmp_path / "precious"
    precious.write_text("mine")
    for name in (
        "recorder/full-00000001.kvtide",
        "recorder/coarse-00000009.kvtide",
        "bundles/x.kvtide",
        "bundles/y.part",
    ):
        (kept / name).mkdir(parents=True)
    (kept / "recorder/full-00000002.kvtide").symlink_to(precious)
    recorder = kept_in(kept)
    take(recorder, range(3))
    assert (recorder.state.states_total, recorder.state.reason) == (3, "")
    assert precious.read_text() == "mine"
    assert len(list(read(kept / "recorder/full-00000003.kvtide").states())) == 3


def test_a_directory_that_goes_away_is_made_again(tmp_path: Path) -> None:
    kept = kept_in(tmp_path / "kept")
    take(kept, range(3))
    (tmp_path / "kept").rename(tmp_path / "gone")
    take(kept, range(3, 5))
    assert kept.state.reason == "", "a folder that was only moved is still ours"
    (tmp_path / "gone" / "recorder" / "lock").unlink()
    take(kept, range(5, 6))
    assert kept.state.reason == f"{tmp_path / 'kept'}: was removed while it was recorded to"
    take(kept, range(60, 63))
    assert (kept.state.reason, kept.state.states_total) == ("", 8)


def test_what_is_usual_is_for_the_agent_alone(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o755)
    known = encoded(Usuals(baselines=Baselines()))[1]
    (folder / "baselines.part").write_bytes(b"of an older agent, for all to read")
    take(kept_in(folder), range(2), Learned(known, known))
    assert stat.S_IMODE((folder / "baselines.msgpack").stat().st_mode) == 0o600
    assert usuals_in(folder) is not None


def test_a_pipe_in_the_place_of_what_is_usual_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "baselines.msgpack")
    assert usuals_in(tmp_path) is None


def test_recordings_that_nobody_fetches_are_few(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    take(kept, range(3))
    paths = [kept.bundle(60.0, "asked") for _ in range(store.MOST_ASKED)]
    with pytest.raises(BundleError, match="others still fetch"):
        kept.bundle(60.0, "asked")
    paths[0].unlink()
    assert kept.bundle(60.0, "asked").exists()


def test_a_recording_that_breaks_off_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, out = AgentClient("http://127.0.0.1:9"), tmp_path / "x.kvtide"

    def broken() -> Iterator[bytes]:
        yield b"KVTIDE"
        raise httpx2.ReadError("gone")

    answer = httpx2.MockTransport(lambda _request: httpx2.Response(200, content=broken()))
    monkeypatch.setattr(client, "_http", httpx2.Client(base_url="http://127.0.0.1:9", transport=answer))
    with pytest.raises(Exception, match="gone"):
        client.save_recording(1.0, out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out", ["", "/", ".", "{0}/notes.txt", "{0}/seen.kvtide", "{0}/" + "a" * 300])
def test_a_simulation_replaces_nothing_of_value(tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    written(tmp_path / "seen.kvtide", leaking(3, 1))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    told = line(capsys, 2, "simulate", out.format(tmp_path), "--minutes", "1", "--engine-python", "/bin/true")
    assert told.startswith("kvtide: ")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_interpreter_that_can_not_run_and_a_seed_too_large(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python: Any = tmp_path / "python"
    python.write_text("no program")
    python.chmod(0o755)
    told = line(capsys, 2, "simulate", tmp_path / "a", "--engine-python", python)
    assert told == f"kvtide: {python}: can't be started: Exec format error"
    assert "64 bits" in line(capsys, 2, "simulate", tmp_path / "a", "--seed", str(1 << 70))
    with pytest.raises(Exception, match="ended with code 0"):
        simulate(Spec(), tmp_path / "a", Path("/bin/true"))
    assert [path.name for path in tmp_path.iterdir()] == ["python"]
