"""``kvtide top`` in scripts: one screen, JSON, exit codes, one line for an error."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agent.cli import app
from agent.state import AgentState
from tests.unit.recordings import leaking, written
from tests.unit.test_cli import KVTIDE, SECONDS
from tests.unit.top import nodes
from tests.unit.top.test_live import Answering

STATE = msgspec.json.encode(nodes.small())


class Command:
    """Runs the command in this process: a start of Python each would take most of the time."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        code = app.run([str(each) for each in arguments])
        out = self._capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, out.out, out.err)

    def refused(self, code: int, *arguments: object) -> str:
        """Run a command that must fail with one line and nothing else."""
        result = self(*arguments)
        assert (result.returncode, result.stdout) == (code, "")
        (line,) = result.stderr.splitlines()
        return line.removeprefix("kvtide: ")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def url() -> Iterator[str]:
    server = Answering(STATE)
    yield server.url
    server.close()


def test_one_screen_in_a_pipe(run: Command, url: str) -> None:
    result = run("top", "--once", "--url", url)
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    for text in ("PAGE  kv_orphan m", "GPU 0 ", "quiet ", "GPUs and host", "mode enforce"):
        assert text in result.stdout


@pytest.mark.parametrize(
    ("view", "text"),
    [("engine", "forecast"), ("tenants", "of quota"), ("blocks", "L orphaned"), ("verdicts", "Drain this node.")],
)
def test_one_screen_of_each_view(run: Command, url: str, view: str, text: str) -> None:
    result = run("top", "--once", "--view", view, "--url", url)
    assert (result.returncode, result.stderr) == (0, "")
    assert text in result.stdout


def test_one_engine_by_its_label(run: Command, url: str) -> None:
    assert "No values: silent" in run("top", "--once", "--view", "engine", "--engine", "quiet", "--url", url).stdout
    assert "s  vllm, no hooks" in run("top", "--once", "--view", "engine", "--engine", "s", "--url", url).stdout
    assert "Engine x is gone." in run("top", "--once", "--view", "engine", "--engine", "x", "--url", url).stdout


def test_the_state_as_json(run: Command, url: str) -> None:
    result = run("top", "--json", "--url", url)
    assert (result.returncode, result.stderr) == (0, "")
    assert msgspec.json.decode(result.stdout, type=AgentState) == nodes.small()


def test_a_bundle_in_a_pipe(run: Command, tmp_path: Path) -> None:
    bundle = written(tmp_path / "a.kvtide", leaking(90, since=20))
    once = run("top", "--once", "--replay", bundle)
    assert (once.returncode, once.stderr) == (0, "")
    assert "kv_orphan m confirmed since" in once.stdout
    assert " REPLAY paused " in once.stdout.splitlines()[0]
    assert "live" not in once.stdout.splitlines()[0]
    told = msgspec.json.decode(run("top", "--json", "--replay", bundle).stdout, type=AgentState)
    assert told.judgement is not None
    assert "kv_orphan" in [each.kind for each in told.judgement.verdicts]


@pytest.mark.parametrize("option", ["--once", "--json"])
def test_exit_code_1_where_nothing_can_be_shown(run: Command, tmp_path: Path, option: str) -> None:
    nobody = "http://127.0.0.1:1"
    assert run.refused(1, "top", option, "--url", nobody).startswith(f"no agent answers at {nobody} (")
    assert "is not a kvtide bundle" in run.refused(1, "top", option, "--replay", __file__)
    assert "No such file" in run.refused(1, "top", option, "--replay", tmp_path / "none.kvtide")
    empty = written(tmp_path / "a.kvtide", iter(()))
    assert run.refused(1, "top", option, "--replay", empty) == f"{empty}: there is no state in it"


def test_exit_code_2_for_wrong_use(run: Command, url: str) -> None:
    assert run.refused(2, "top", "--once", "--json") == "--once and --json: one of them"
    assert run.refused(2, "top", "--url", url) == (
        "kvtide top needs a terminal; --once prints one screen, --json the state"
    )
    for wrong in (("--view", "nonsense"), ("--speed", "0"), ("--speed", "fast")):
        result = run("top", "--once", *wrong)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr


def test_on_a_terminal_it_paints_and_q_ends_it(url: str) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [str(KVTIDE), "top", "--url", url],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
        start_new_session=True,
    ) as process:
        os.close(follower)
        got = b""
        while b"kv_orphan" not in got:
            got += os.read(leader, 65536)
        os.write(leader, b"q")
        try:
            while os.read(leader, 65536):
                pass
        except OSError:  # the other end is closed: it has ended
            pass
        assert process.wait(SECONDS) == 0
    os.close(leader)


@pytest.mark.parametrize("url", ["", "http://", "::::", "ftp://gpu-7", "http://[::1", "\x00", "/run/kvtide/agent.sock"])
def test_what_is_no_address_is_wrong_use(run: Command, url: str) -> None:
    for command in (("status",), ("top", "--once"), ("top", "--json")):
        line = run.refused(2, *command, "--url", url)
        assert line.startswith("--url: ")
        assert line.endswith("; it must be like http://127.0.0.1:9477")


def test_the_shell_completes_commands_and_options() -> None:
    for words, number, found in (("kvtide to", "1", "top"), ("kvtide top --vi", "2", "--view")):
        env = {**os.environ, "_KVTIDE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": number}
        result = subprocess.run([str(KVTIDE)], env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert (result.returncode, result.stdout.split()) == (0, [found])
