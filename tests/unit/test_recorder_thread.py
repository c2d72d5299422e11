"""The recorder's thread: the agent never waits for it, and what was learned is there for the next agent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.bundle.format import BundleError, read
from agent.recorder import recorder, store
from agent.recorder.kept import usuals_in
from agent.recorder.recorder import Recorder
from tests.unit.recorders import CALM, USUALS, files, kept_in, monotonic_of
from tests.unit.recordings import leaking, moment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def run(folder: Path, during: Callable[[Recorder], None]) -> Recorder:
    made = Recorder(kept_in(folder), lambda: USUALS)
    made.start()
    during(made)
    made.close()
    return made


def test_states_go_through_the_thread_and_baselines_with_them(folder: Path) -> None:
    made = run(folder, lambda made: [made.take(state, CALM) for state in leaking(10, 100)] and None)
    assert made.state().states_total == 10
    assert usuals_in(folder) == USUALS
    assert monotonic_of(files(folder, "full")) == list(range(10))


def test_who_asks_gets_a_bundle(folder: Path) -> None:
    found: list[int] = []

    def during(made: Recorder) -> None:
        for state in leaking(10, 100):
            made.take(state, CALM)
        path = made.ask(60.0).result(20.0)
        found.append(len(list(read(path).states())))

    run(folder, during)
    assert found == [10]


def test_a_disk_that_hangs_costs_states_and_the_agent_does_not_wait(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "CLOSE_SECONDS", 0.01)
    hang, kept = threading.Event(), kept_in(folder)
    real = kept.take
    monkeypatch.setattr(kept, "take", lambda *each: (hang.wait(60.0), real(*each)))
    made = Recorder(kept, lambda: USUALS)
    made.start()
    for state in leaking(100, 1000):
        made.take(state, CALM)
    assert made.state().dropped_total in (100 - recorder.WAITING, 99 - recorder.WAITING)
    with pytest.raises(BundleError, match="the disk is too slow"):
        made.ask(60.0).result(1.0)
    made.close()
    hang.set()
    made._work.put(None)
    made._thread.join(20.0)


def test_a_fault_of_ours_ends_no_thread_and_is_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept, faults = kept_in(folder), iter([ZeroDivisionError("one"), ZeroDivisionError("two"), KeyError("three")])

    def take(*_: object) -> None:
        raise next(faults)

    monkeypatch.setattr(kept, "take", take)
    made = Recorder(kept, lambda: USUALS)
    made.start()
    made.take(moment(0), CALM)
    made.take(moment(1), CALM)
    made.take(moment(2), CALM)
    made.close()
    assert made.state().dropped_total == 3
    told = [(record.levelno, record.getMessage(), record.exc_info) for record in caplog.records]
    where = f"{Path(__file__).name}:{take.__code__.co_firstlineno + 1}"
    lines = [f"ZeroDivisionError at {where}: one", f"KeyError at {where}: 'three'"]
    end = ": please report this (it is told once)"
    assert told == [(logging.ERROR, f"a state was not recorded: {line}{end}", None) for line in lines]


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x91" * 50_000, bytes(5 << 20)])
def test_baselines_that_can_not_be_used_are_learned_anew(folder: Path, content: bytes) -> None:
    assert usuals_in(folder) is None
    folder.mkdir()
    (folder / store.BASELINES).write_bytes(content)
    assert usuals_in(folder) is None
