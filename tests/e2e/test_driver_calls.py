"""The driver's memory calls, timed from outside by a real bpftrace over a library that sleeps as told."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.sources.base import SourceError
from agent.sources.config import DriverCallsConfig
from agent.sources.driver_calls import source, tracer
from agent.sources.driver_calls.source import NOBODY, DriverCallsSource
from agent.sources.driver_calls.state import CallRow, DriverCallsState
from agent.sources.host.inputs import Watched
from tests.bed.cuda_stub import Caller, build

PATIENCE = 180.0
_TRIAL = "interval:ms:1 { exit(); }"


# How long bpftrace may take here: where much else is done, it takes longer than what means that it hangs.
source.ATTACH_SECONDS = source.SILENT_SECONDS = tracer.LIST_SECONDS = tracer.END_SECONDS = PATIENCE / 2


def _why_not() -> str:
    for command in ("bpftrace", "cc"):
        if shutil.which(command) is None:
            return f"{command} is not installed"
    if os.geteuid() != 0:
        return "bpftrace needs root"
    trial = subprocess.run(["bpftrace", "-e", _TRIAL], capture_output=True, timeout=PATIENCE, check=False, text=True)
    return f"bpftrace does not work here: {trial.stderr.strip()[:200]}" if trial.returncode else ""


@pytest.fixture(scope="module", autouse=True)
def _can_trace() -> None:
    if reason := _why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def caller(library: Path) -> Iterator[Caller]:
    with Caller(library) as caller:
        yield caller


class Rig:
    """A source whose engines a test names by their pids."""

    def __init__(self, config: DriverCallsConfig | None = None) -> None:
        self.engines: dict[str, int] = {}
        self.source = DriverCallsSource(config or DriverCallsConfig(enabled=True), self._watched)

    def _watched(self) -> tuple[Watched, ...]:
        return tuple(Watched(engine, "core", 0, pid) for engine, pid in self.engines.items())

    def until(self, holds: Callable[[DriverCallsState], object]) -> DriverCallsState:
        """Read, as the runner does, until ``holds``; being down meanwhile is allowed."""
        end, last = time.monotonic() + PATIENCE, ""
        while time.monotonic() < end:
            try:
                state = self.source.read()
                if holds(state):
                    return state
                last = str(state)
            except SourceError as error:
                last = str(error)
            time.sleep(0.1)
        raise AssertionError(f"did not happen; last: {last}")

    def until_down(self) -> str:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                self.source.read()
            except SourceError as error:
                return str(error)
            time.sleep(0.1)
        raise AssertionError("is not down")

    def follow(self, **engines: int) -> None:
        self.engines = engines
        self.until(lambda state: state.attached)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.source.close()


def tracers_of(pid: int) -> list[int]:
    """The bpftrace processes that ``pid`` has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        if name == "bpftrace" and int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def above(row: CallRow, seconds: float) -> int:
    """Calls in buckets that lie above ``seconds``, which is a bound."""
    return sum(row.seconds.counts[row.seconds.bounds.index(seconds) + 1 :])


def calls_of(state: DriverCallsState, engine: str) -> int:
    return sum(sum(row.seconds.counts) for row in state.calls if row.engine == engine)


def by_call(state: DriverCallsState) -> dict[tuple[str, str], CallRow]:
    return {(row.engine, row.call): row for row in state.calls}


def test_three_functions_are_counted_exactly_and_timed(rig: Rig, caller: Caller, library: Path) -> None:
    with Caller(library) as other, Caller(library) as stranger:
        rig.follow(a=caller.pid, b=other.pid)
        caller.call("cuMemAlloc_v2", 2_000, 20)
        caller.call("cuMemCreate", 60_000, 5)
        caller.call("cudaMallocAsync", 510_001, 1)
        other.call("cuMemAlloc_v2", 11_001, 3)
        stranger.call("cuMemAlloc_v2", 1_000, 50)
        found = by_call(rig.until(lambda state: sum(sum(row.seconds.counts) for row in state.calls) >= 29))
    counts = {key: (sum(row.seconds.counts), row.failures_total) for key, row in found.items()}
    assert counts == {
        ("a", "cuMemAlloc_v2"): (20, 0),
        ("a", "cuMemCreate"): (5, 0),
        ("a", "cudaMallocAsync"): (1, 1),
        ("b", "cuMemAlloc_v2"): (3, 3),
    }
    # A sleep never ends early: each call lies above the bound that its time exceeds.
    assert above(found["a", "cuMemAlloc_v2"], 0.001) == 20
    assert above(found["a", "cuMemCreate"], 0.05) == 5
    assert above(found["a", "cudaMallocAsync"], 0.5) == 1
    assert above(found["b", "cuMemAlloc_v2"], 0.01) == 3
    assert found["a", "cuMemCreate"].seconds.sum >= 5 * 0.06
    assert found["a", "cuMemCreate"].recent_p99_seconds >= 0.1
    assert found["a", "cudaMallocAsync"].recent_p50_seconds >= 1.0


def test_when_bpftrace_is_killed_the_source_is_down_and_comes_back_with_its_counts(rig: Rig, caller: Caller) -> None:
    rig.follow(a=caller.pid)
    caller.call("cuMemAlloc_v2", 100, 7)
    rig.until(lambda state: state.calls and sum(state.calls[0].seconds.counts) == 7)
    os.kill(tracers_of(os.getpid())[0], signal.SIGKILL)
    assert rig.until_down() == "bpftrace was ended by signal 9"
    back = rig.until(lambda state: state.attached)
    assert (back.restarts, sum(back.calls[0].seconds.counts)) == (1, 7)
    caller.call("cuMemAlloc_v2", 100, 2)
    assert rig.until(lambda state: sum(state.calls[0].seconds.counts) == 9)


def test_an_engine_that_comes_later_is_traced_too_and_one_that_went_is_forgotten(
    rig: Rig, caller: Caller, library: Path
) -> None:
    rig.follow(a=caller.pid)
    caller.call("cuMemAlloc_v2", 100, 3)
    rig.until(lambda state: state.calls and sum(state.calls[0].seconds.counts) == 3)
    with Caller(library) as later:
        rig.engines["b"] = later.pid
        rig.until(lambda state: state.restarts == 1 and state.attached)
        later.call("cuMemCreate", 100, 4)
        found = by_call(rig.until(lambda state: calls_of(state, "b") == 4))
        assert sum(found["a", "cuMemAlloc_v2"].seconds.counts) == 3, "kept over the restart"
        del rig.engines["a"]
        assert {row.engine for row in rig.source.read().calls} == {"b"}
    rig.engines.clear()
    rest = rig.source.read()
    assert (rest.calls, rest.attached, rest.reason) == ((), False, NOBODY)
    assert not tracers_of(os.getpid()), "nothing is traced when nobody is watched"


def test_closing_ends_bpftrace(caller: Caller) -> None:
    rig = Rig()
    rig.follow(a=caller.pid)
    assert len(tracers_of(os.getpid())) == 1
    rig.source.close()
    assert not tracers_of(os.getpid())
    with pytest.raises(SourceError):
        rig.source.read()


def test_it_dies_with_an_agent_that_is_killed(caller: Caller) -> None:
    code = (
        "import sys, time\n"
        "from tests.e2e.test_driver_calls import Rig\n"
        "Rig().follow(a=int(sys.argv[1])); print('attached', flush=True); time.sleep(600)\n"
    )
    agent = subprocess.Popen([sys.executable, "-c", code, str(caller.pid)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    assert agent.stdout.readline() == "attached\n"
    (tracer,) = tracers_of(agent.pid)
    agent.kill()
    agent.wait()
    agent.stdout.close()
    end = time.monotonic() + PATIENCE
    while Path(f"/proc/{tracer}/stat").exists() and ") Z " not in Path(f"/proc/{tracer}/stat").read_text():
        assert time.monotonic() < end, "bpftrace outlives the agent"
        time.sleep(0.1)
    caller.call("cuMemAlloc_v2", 100, 1)  # and what it traced goes on


def test_a_library_by_path_and_one_without_any_of_the_functions(caller: Caller, library: Path) -> None:
    named = Rig(DriverCallsConfig(enabled=True, library=library))
    named.follow(a=caller.pid)
    caller.call("cuMemAlloc_v2", 100, 2)
    named.until(lambda state: state.calls and sum(state.calls[0].seconds.counts) == 2)
    named.source.close()
    other = Path(shutil.which("cc") or "").resolve()
    wrong = Rig(DriverCallsConfig(enabled=True, library=other))
    wrong.engines = {"a": caller.pid}
    assert wrong.until_down() == f"none of the functions to be timed is in {other}"
    wrong.source.close()


def test_without_the_privilege_one_line_says_so(caller: Caller, library: Path) -> None:
    code = (
        "import sys\n"
        "from tests.e2e.test_driver_calls import DriverCallsConfig, Rig\n"
        "rig = Rig(DriverCallsConfig(enabled=True, library=sys.argv[2])); rig.engines = {'a': int(sys.argv[1])}\n"
        "print(rig.until_down()); rig.source.close()\n"
    )
    command = ["setpriv", "--bounding-set", "-all", sys.executable, "-c", code, str(caller.pid), str(library)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=True).stdout
    assert told.startswith("bpftrace ended with status ")
    assert told.endswith("(it needs root with CAP_SYS_ADMIN)\n")
    assert told.count("\n") == 1
