"""``kvtide simulate`` that is ended in the middle: what was done is whole, nothing else stays, no process goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.bundle.format import read

DAY = ("--hours", "24", "--rate", "3", "--leak-kind", "orphan", "--leak-rate", "12", "--onset", "30")
START_SECONDS = 180.0


def begun(out: Path) -> subprocess.Popen[str]:
    """Start a run of hours; return once some of it is done."""
    command = "import sys; from agent.cli.app import run; sys.exit(run(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "simulate", str(out), *DAY, "--engine-python", sys.executable],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    draft, deadline = out.with_name(f".{out.name}.part"), time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if draft.exists() and draft.stat().st_size > 100_000:
            return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"it did not begin: {process.communicate()[1]}")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    """Return whether it ends soon: a process that is ended needs a moment."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_leaves_what_was_done_and_nothing_else(tmp_path: Path, number: int) -> None:
    out = tmp_path / "day.kvtide"
    process = begun(out)
    (simulator,) = children(process.pid)
    assert not out.exists(), "nothing has its name before it is whole"
    process.send_signal(number)
    _, said = process.communicate(timeout=60.0)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == f"kvtide: interrupted; {out} has what was done until then"
    bundle = read(out)
    states = list(bundle.states())
    assert 60 < len(states) < 24 * 3600
    assert bundle.torn == ""
    assert [label.kind for label in bundle.header.labels] == ["kv_orphan"]
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    assert gone(simulator)


def test_one_that_is_killed_leaves_nothing_under_its_name_and_no_process(tmp_path: Path) -> None:
    out = tmp_path / "day.kvtide"
    process = begun(out)
    (simulator,) = children(process.pid)
    process.kill()
    process.communicate(timeout=60.0)
    assert not out.exists()
    assert gone(simulator), "it has nobody to tell any more"
