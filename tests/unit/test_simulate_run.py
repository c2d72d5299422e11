"""The agent's side of the simulator: items of a run made into states and labels, whole bundles in all cases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.bundle.format import Header, read
from agent.errors import ConfigError, KvtideError
from agent.simulate.process import Simulator, SimulatorError, engine_python
from agent.simulate.run import Fault, Spec, Summary, _header, simulate
from agent.simulate.states import States
from agent.simulate.truth import Truths
from agent.subject import Subject
from engine_hooks import wire
from engine_hooks.simulator import pipe
from engine_hooks.simulator.clock import MONOTONIC_START
from engine_hooks.simulator.spec import Truth
from tests.unit.builders import make_hello, make_report


def header(spec: Spec) -> Header:
    return _header(spec, States(spec.start), Truths(spec), unseen=False)


def at(seconds: float, kind: int, message: object = None) -> pipe.Item:
    body = b"" if message is None else wire.encode(message)  # type: ignore[arg-type]
    return pipe.Item(MONOTONIC_START + seconds, kind, body)


def truth(seconds: float, what: str, **values: Any) -> pipe.Item:
    told = Truth(what=what, onset=seconds, **{"number": 0, "kind": "orphan", "verdict": "kv_orphan"} | values)
    return pipe.Item(MONOTONIC_START + seconds, pipe.TRUTH, msgspec.msgpack.encode(told))


class Told(Simulator):
    """Says what it was given, as a process would: no process is started."""

    def __init__(self, items: list[pipe.Item], error: BaseException | None = None) -> None:
        self._items, self._error = items, error
        self.closed = False

    def run(self, spec: Spec) -> Iterator[pipe.Item]:
        yield from self._items
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.closed = True


RUN = [
    at(0.0, pipe.HELLO, make_hello(name="simulated")),
    at(0.2, pipe.REPORT, make_report(sequence=1, steps=1)),
    at(1.4, pipe.REPORT, make_report(sequence=2, steps=2)),
    at(1.6, pipe.REPORT, make_report(sequence=3, steps=3)),
    truth(2.1, "began"),
    truth(2.1, "planted", blocks=3, tenant="t1"),
    truth(2.3, "planted", blocks=2, tenant="t2"),
    at(2.5, pipe.REPORT, make_report(sequence=4, steps=4)),
    truth(3.7, "ended"),
    at(3.9, pipe.REPORT, make_report(sequence=5, steps=5)),
]


def test_each_second_has_a_state_of_what_was_told_until_then(tmp_path: Path) -> None:
    summary = simulate(Spec(seconds=5.0), tmp_path / "a.kvtide", simulator=Told(RUN))
    bundle = read(tmp_path / "a.kvtide")
    states = list(bundle.states())
    assert bundle.torn == ""
    assert summary.states == len(states) == 5
    assert [state.engines[0].steps for state in states] == [1, 3, 4, 5, 5]
    assert [state.monotonic for state in states] == [MONOTONIC_START + n for n in range(1, 6)]
    assert states[0].at == Spec().start + 1.0


def test_an_engine_that_is_gone_is_gone(tmp_path: Path) -> None:
    items = [*RUN[:2], at(1.5, pipe.GONE)]
    simulate(Spec(seconds=6.0), tmp_path / "a.kvtide", simulator=Told(items))
    phases = [s.engines[0].phase if s.engines else "" for s in read(tmp_path / "a.kvtide").states()]
    assert phases == ["live", "lost", "lost", "", "", ""]


def test_labels_have_the_truth(tmp_path: Path) -> None:
    summary = simulate(
        Spec(seconds=5.0, faults=(Fault(kind="orphan", onset=2.0),)), tmp_path / "a", simulator=Told(RUN)
    )
    (label,) = read(tmp_path / "a").header.labels
    assert (label.kind, label.onset, label.ended) == ("kv_orphan", MONOTONIC_START + 2.1, MONOTONIC_START + 3.7)
    assert label.subject == Subject(scope="engine", engine="simulated")
    assert label.note == "orphan; 5 blocks; tenants t1, t2"
    assert not label.unseen
    assert summary.planted == {0: 5}


def test_a_label_about_a_tenant_names_it(tmp_path: Path) -> None:
    items = [*RUN[:2], truth(2.0, "began", kind="tenant_surge", verdict="tenant_surge", scope="tenant", tenant="t4")]
    simulate(Spec(seconds=5.0), tmp_path / "a", simulator=Told(items), unseen=True)
    (label,) = read(tmp_path / "a").header.labels
    assert label.subject == Subject(scope="tenant", engine="simulated", tenant="t4")
    assert label.unseen


def test_healthy_events_are_no_labels(tmp_path: Path) -> None:
    items = [*RUN[:2], truth(2.0, "began", kind="restart", verdict="")]
    simulate(Spec(seconds=5.0), tmp_path / "a", simulator=Told(items))
    head = read(tmp_path / "a").header
    assert head.labels == ()
    assert head.labelled
    assert head.about["events"] == "restart began@1002.000"


def test_an_interrupt_leaves_what_was_done(tmp_path: Path) -> None:
    told = Told(RUN[:8], KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        simulate(Spec(seconds=3600.0), tmp_path / "a.kvtide", simulator=told)
    bundle = read(tmp_path / "a.kvtide")
    assert len(list(bundle.states())) == 2
    assert bundle.torn == ""
    assert [label.kind for label in bundle.header.labels] == ["kv_orphan"]
    assert told.closed
    assert [path.name for path in tmp_path.iterdir()] == ["a.kvtide"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    simulate(Spec(), tmp_path / "a.kvtide", simulator=Told(RUN))
    before = (tmp_path / "a.kvtide").read_bytes()
    with pytest.raises(SimulatorError):
        simulate(Spec(), tmp_path / "a.kvtide", simulator=Told(RUN, SimulatorError("it ended")))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(KvtideError, match="nowhere"):
        simulate(Spec(), tmp_path / "nowhere" / "a.kvtide", simulator=Told(RUN))


def test_progress_is_told(tmp_path: Path) -> None:
    done: list[float] = []
    summary: Summary = simulate(Spec(seconds=3.0), tmp_path / "a", simulator=Told(RUN[:8]), progress=done.append)
    assert done == [1.0, 2.0, 3.0]
    assert summary.seconds == 3.0


def test_without_vllm_it_says_what_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KVTIDE_ENGINE_PYTHON", raising=False)
    with pytest.raises(ConfigError, match="--engine-python or KVTIDE_ENGINE_PYTHON"):
        engine_python()
    monkeypatch.setenv("KVTIDE_ENGINE_PYTHON", str(tmp_path))
    with pytest.raises(ConfigError, match="is no interpreter"):
        engine_python()


def test_an_interpreter_without_vllm_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SimulatorError, match=r"ended with code 1: ModuleNotFoundError: No module named 'vllm'"):
        simulate(Spec(), tmp_path / "a", Path(sys.executable))
    assert not list(tmp_path.iterdir())
