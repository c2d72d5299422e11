"""``kvtide simulate`` as a user runs it, without vLLM: what is wrong is one line, and options become a spec."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.cli import app, simulate
from agent.simulate.run import Event, Spec, Summary


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run the command line, and return the spec that would be run."""
    specs: list[Spec] = []
    monkeypatch.setattr(simulate, "_run", lambda spec, *_, **__: specs.append(spec))

    def ask(*arguments: str) -> Spec:
        assert app.run(["simulate", str(tmp_path / "a.kvtide"), *arguments]) == 0
        return specs[-1]

    return ask


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert app.run(["simulate", "a.kvtide", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_an_hour_is_the_default(asked: Any) -> None:
    assert asked() == Spec()
    assert asked("--hours", "2", "--minutes", "30").seconds == 9000.0


def test_options_make_the_load(asked: Any) -> None:
    sessions = ("--mixed-tenants", "4", "--turns", "3", "--context-ttl", "60")
    words = (*sessions, "--interrupt-rate", "0.1", "--burst", "5", "--rate", "2", "--seed", "9")
    spec = asked(*words)
    load = spec.load
    assert (spec.seed, load.tenants, load.turns, load.context_ttl) == (9, 4, 3.0, 60.0)
    assert (load.interrupts, load.burst, load.rate) == (0.1, 5.0, 2.0)


def test_a_fault_brings_what_it_needs(asked: Any) -> None:
    spec = asked("--leak-kind", "delayed_free", "--leak-kind", "spec_residue", "--leak-rate", "6", "--onset", "30")
    assert [(fault.kind, fault.rate, fault.onset) for fault in spec.faults] == [
        ("delayed_free", 6.0, 30.0),
        ("spec_residue", 6.0, 30.0),
    ]
    assert spec.engine.connector == "remote"
    assert spec.engine.drafts > 0
    spec.check()
    assert asked("--leak-kind", "spec_residue", "--speculation", "2").engine.drafts == 2


def test_events_have_a_time_a_length_and_a_size(asked: Any) -> None:
    spec = asked("--event", "restart@1200", "--event", "burst@600+30x4.5", "--event", "bounded_delay@60")
    assert spec.events == (
        Event(kind="restart", at=1200.0),
        Event(kind="burst", at=600.0, seconds=30.0, size=4.5),
        Event(kind="bounded_delay", at=60.0),
    )
    assert spec.engine.connector == "remote"


def test_a_file_may_have_the_whole_spec(asked: Any, tmp_path: Path) -> None:
    spec = Spec(seed=4, events=(Event(kind="quiet"),))
    (tmp_path / "spec.json").write_bytes(msgspec.json.encode(spec))
    assert asked("--spec", str(tmp_path / "spec.json")) == spec


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--leak-kind", "gremlin"), "fault 'gremlin' is not known"),
        (("--event", "restart"), "say KIND@SECONDS"),
        (("--event", "restart@1.2.3"), "say KIND@SECONDS"),
        (("--rate", "0"), "`$.load.rate`"),
        (("--blocks", "3"), "`$.engine.blocks`"),
        (("--spec", "nowhere.json"), "nowhere.json: No such file"),
        (("--engine-python", "/nowhere/python"), "is no interpreter"),
        (("--leak-kind", "delayed_free", "--connector", "opaque"), "needs the connector 'remote'"),
        (("--leak-kind", "orphan", "--minutes", "5"), "onset 600 s is not within the run of 300 s"),
    ],
)
def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.delenv("KVTIDE_ENGINE_PYTHON", raising=False)
    line = refused(capsys, *arguments)
    assert line.startswith("kvtide: ")
    assert words in line


def test_the_result_says_how_fast_it_was(tmp_path: Path) -> None:
    out = tmp_path / "a.kvtide"
    out.write_bytes(b"x" * 2048)
    summary = Summary(
        states=3600,
        seconds=3600.0,
        wall_seconds=30.0,
        labels=(),
        planted={},
        engine_version="0.32.0",
    )
    lines = simulate._lines(Spec(), summary, out)
    assert lines[0].endswith("3,600 states, 2.0 KiB; vLLM 0.32.0, seed 0")
    assert lines[1].endswith(": 120 times as fast")
    assert lines[2] == "nothing is wrong in it"


def test_a_signal_that_was_lost_ends_the_run_at_the_next_state() -> None:
    """What a handler raises inside a destructor is dropped by Python; the run must not go on for that."""
    stop = simulate._Stop()
    stop.check(0.0)
    with pytest.raises(KeyboardInterrupt):
        stop(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        stop.check(1.0)
