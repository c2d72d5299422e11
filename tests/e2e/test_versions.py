"""Old hooks beside new ones, with a new agent and with an old one: nodes are upgraded one part at a time.


The old ones are those of a commit before levers, waits and failures were on the wire, taken from this repository's own
history. Engines are vLLM's own EngineCoreProc over a made-up model, each with the hooks of its tree.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.cli.control import ControlClient
from agent.errors import KvtideError
from tests.bed.agent import ROOT, AgentProcess

PYTHON = ROOT / ".venv" / "engine" / "bin" / "python"
OLD = "706f530"
RUNNING = 8
START_SECONDS = 600.0

pytestmark = pytest.mark.timeout(2 * START_SECONDS)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the old commit."""
    folder = tmp_path_factory.mktemp("old")
    packed = folder.with_suffix(".tar")
    with packed.open("wb") as file:
        done = subprocess.run(["git", "archive", OLD], cwd=ROOT, stdout=file, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        pytest.skip(f"this checkout has no history that goes back to {OLD}: {done.stderr.decode().strip()}")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    (folder / "build").symlink_to(ROOT / "build")  # its engines need a model's configuration
    return folder


@contextmanager
def engine(tree: Path, name: str, place: Path) -> Iterator[subprocess.Popen[str]]:
    """Run an engine with the hooks of ``tree``, busy for longer than the test."""
    command = [
        str(PYTHON),
        "-m",
        "tests.bed.core_proc",
        "--running",
        str(RUNNING),
        "--prefix",
        "64",
        "--blocks",
        "4000",
    ]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(place), "KVTIDE_SOCKET": str(place / "agent.sock")}
    log = place / f"{name}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--seconds", "1000", "--step-ms", "20"],
            cwd=tree,
            env=env | {"KVTIDE_ENGINE_NAME": name, "KVTIDE_LEVERS": "watermark"},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield process
    finally:
        if process.poll() is not None:
            print(f"{name} ended with {process.returncode}: {log.read_text()[-3000:]}")
        process.kill()
        process.communicate()


def live(agent: AgentProcess) -> dict[str, dict[str, Any]]:
    """Wait until both engines are live and go on, and all their requests run; return them by name, as then seen."""
    seen: dict[str, dict[str, Any]] = {}

    def both() -> bool:
        seen.clear()
        seen.update({each["engine"]: each for each in agent.engines() if each["phase"] == "live"})
        return {name: each["running"] for name, each in seen.items()} == {"new": RUNNING, "old": RUNNING}

    agent.wait(both, START_SECONDS)
    before = dict(seen)
    agent.wait(lambda: both() and all(seen[name]["steps"] > before[name]["steps"] for name in before))
    return seen


def check(agent: AgentProcess) -> None:
    """Both engines are whole to this agent."""
    engines = live(agent)
    for each in engines.values():
        pool = each["pool"]
        assert (pool["capacity"], pool["orphaned"], pool["over_freed"]) == (3999, 0, 0)
        assert pool["held"] + pool["cached_idle"] + pool["empty"] == pool["capacity"]
        assert each["hooks"]["errors"] == {}
    agent.wait(lambda: all(each["detail"] is not None for each in agent.engines()))
    assert set(agent.state()["link"]["rejected_frames"].values()) == {0}
    agent.wait(lambda: agent.metrics()["kvtide_engine_up"] == 2)


def answer(agent: AgentProcess, name: str) -> str:
    """What comes of an order: the phase of the action, or why it is none. An engine that stands still gets no order."""
    said = ""

    def asked() -> bool:
        nonlocal said
        try:
            said = order(agent, name)["phase"]
        except KvtideError as error:
            said = str(error)
        return "stale" not in said and said != "failed"

    agent.wait(asked)
    return said


def order(agent: AgentProcess, name: str) -> Any:
    body = {
        "lever": "watermark",
        "engine": name,
        "arguments": {"ratio": 0.05},
        "attempt": True,
        "minutes": None,
        "why": "",
    }
    return ControlClient(agent.socket).post("/api/v1/orders", body)


def test_engines_of_two_versions_are_whole_to_agents_of_two_versions(old: Path) -> None:
    """Upgraded, taken back, and upgraded again, under the same engines."""
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name, ExitStack() as stack:
        place = Path(name)
        with AgentProcess(place) as agent:
            for tree, called in ((old, "old"), (ROOT, "new")):
                stack.enter_context(engine(tree, called, place))
            check(agent)
            assert answer(agent, "new") == "would"
            assert re.search("unsupported|does not tell", answer(agent, "old"))
        with AgentProcess(place, tree=old) as agent:
            check(agent)
        with AgentProcess(place) as agent:
            check(agent)
