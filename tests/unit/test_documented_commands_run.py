"""What the documentation tells to type is run, in a folder that has what it names, beside a real agent.

The lines that ask for more than that are listed, with what shows them instead.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli.app import run
from tests.bed import snapshots
from tests.bed.agent import AgentProcess
from tests.unit.recordings import leaking, written
from tests.unit.test_documented_commands import COMMANDS

BUNDLES = ("night", "day", "incident", "monday", "tuesday", "stable", "canary")
SOUND = ("stable", "canary")
POLICIES = ("mine.yaml", "policy.yaml", "etc/kvtide/policy.yml")
ROOTS = ("/etc/", "/var/lib/", "/run/")
# A part of the line, and what shows it.
ELSEWHERE = {
    "prometheus:9090": "tests/e2e/test_backtest_prometheus.py, tests/unit/canary, tests/unit/doctor",
    "127.0.0.1:9090": "tests/e2e/test_alerting.py",
    "grafana": "tests/unit/dashboards/test_command.py",
    "simulate": "tests/engine/test_simulator_interrupted.py: it needs an environment with vLLM",
    "advise": "tests/unit/advise: it needs an environment with vLLM",
    "llama": "tests/e2e/test_compaction_real.py, tests/unit/supervisor: it needs an engine",
    "tiny": "tests/e2e/test_actions_real.py: it needs an engine",
    "actions undo": "tests/e2e/test_actions_real.py: it needs an action",
    "status --watch": "it has no end",
    "top --url": "tests/unit/top: another host",
    "top --replay": "tests/unit/top: it has no end",
    "agent --policy": "every test of tests/e2e: it has no end",
    "fleet off --config": "tests/unit/balancer/test_word.py: it needs a coordinator",
    "doctor --json": "tests/unit/doctor: what it finds depends on the machine",
    "web check": "tests/unit/web: it needs certificates",
    "web hash": "tests/unit/web: it asks for a password",
}
# A name in a sentence, or a command that stands for a choice of what to give it.
NAMES = {
    "actions", "actions fleet", "advise", "agent", "alerts build", "backtest", "canary", "compact", "doctor", "node",
    "policy explain", "replay", "report", "simulate", "snapshot", "top", "actions fleet close-breaker",
}  # fmt: skip


def typed() -> list[str]:
    """Return the lines of ``kvtide`` that are to be run."""
    lines = {line for _, program, line in COMMANDS if program == "kvtide"}
    return sorted(line for line in lines - NAMES if not any(part in line for part in ELSEWHERE))


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder with all that the lines name, and an agent."""
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        folder = Path(name)
        for each in POLICIES:
            path = folder / each
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("profile: latency\n")
        for each in BUNDLES:
            written(folder / f"{each}.kvtide", leaking(400, 1000 if each in SOUND else 60))
        (folder / "var/lib").mkdir(parents=True)
        written(folder / "var/lib/kvtide", leaking(200, 60))
        for each in ("1", "2", "3", "dump"):
            snapshots.write(snapshots.server_like(200).snapshot(), folder / f"{each}.pickle")
        with AgentProcess(folder / "agent", args=["--state-directory", str(folder / "kept")]) as agent:
            (folder / "url").write_text(agent.url)
            yield folder


@pytest.mark.parametrize("line", typed())
def test_it_runs(
    place: Path, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path if line.startswith("record") else place)
    monkeypatch.setenv("KVTIDE_SOCKET", str(place / "agent" / "agent.sock"))
    monkeypatch.setenv("KVTIDE_URL", (place / "url").read_text())
    monkeypatch.setenv("KVTIDE_STATE_DIRECTORY", str(place / "kept"))
    arguments = [str(place) + each if each.startswith(ROOTS) else each for each in shlex.split(line)]
    code = run(arguments)
    told = capsys.readouterr()
    assert code == 0, f"kvtide {line}: {code}: {told.err[-600:]}{told.out[-300:]}"


def test_every_exception_is_still_in_the_documentation() -> None:
    lines = [line for _, program, line in COMMANDS if program == "kvtide"]
    assert [part for part in ELSEWHERE if not any(part in line for line in lines)] == []
    assert set(lines) >= NAMES
