"""Processes, files and a Prometheus, as the doctor finds them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent.cli.app import run
from agent.doctor import files, processes, prometheus
from agent.doctor.findings import WHEEL
from agent.doctor.processes import Process


def serving(pid: int, python: str, parent: int = 1, environ: Mapping[str, str] | None = None) -> Process:
    return Process(pid, parent, (python, f"{Path(python).parent}/vllm", "serve", "model"), environ)


@pytest.fixture
def python(tmp_path: Path) -> str:
    (tmp_path / "bin").mkdir()
    return str(tmp_path / "bin" / "python3")


def installed(python: str) -> None:
    Path(python).parents[1].joinpath("lib/python3.11/site-packages/kvtide-0.1.0.dist-info").mkdir(parents=True)


def test_an_engine_without_hooks_gets_the_command_that_installs_them(python: str) -> None:
    (found,) = processes.findings([serving(7, python)], frozenset())
    assert (found.check, found.level) == ("vLLM, pid 7", "bad")
    assert (
        found.mend == f"{Path(python).parents[1]}/bin/python -m pip install {WHEEL}, then restart it (docs/release.md)"
    )


def test_one_that_the_agent_hears_of_by_any_of_its_processes_is_not_told(python: str) -> None:
    core = Process(8, 7, ("VLLM::EngineCore",), None)
    assert list(processes.findings([serving(7, python), core], frozenset({8}))) == []
    assert [each.check for each in processes.findings([serving(7, python), core], frozenset())] == ["vLLM, pid 7"]


@pytest.mark.parametrize(
    ("environ", "level", "mend"),
    [
        ({"KVTIDE_DISABLE": "1"}, "note", "unset KVTIDE_DISABLE"),
        ({"VLLM_PLUGINS": "other"}, "bad", "add kvtide to VLLM_PLUGINS"),
        ({"VLLM_PLUGINS": "other,kvtide"}, "bad", "restart it; compare KVTIDE_SOCKET"),
        ({}, "bad", "restart it; compare KVTIDE_SOCKET"),
    ],
)
def test_hooks_that_are_installed_and_silent_have_a_reason(
    python: str, environ: dict[str, str], level: str, mend: str
) -> None:
    installed(python)
    (found,) = processes.findings([serving(7, python, environ=environ)], frozenset())
    assert found.level == level
    assert mend in found.mend


def test_one_that_still_loads_need_not_be_restarted(python: str) -> None:
    installed(python)
    (found,) = processes.findings([serving(7, python)._replace(age=20.0)], frozenset())
    assert (found.level, found.text) == ("note", "started 20 s ago, and no agent hears of it yet")
    assert "restart" not in found.mend


NO_SERVERS = [("python3", "train.py"), ("vim", "vllm"), ("grep", "vllm", "serve.log"), ("vllm", "bench")]


@pytest.mark.parametrize("command", NO_SERVERS)
def test_what_is_no_server_is_not_told(command: tuple[str, ...]) -> None:
    assert list(processes.findings([Process(7, 1, command, {})], frozenset())) == []


def test_this_hosts_processes_can_be_read() -> None:
    assert os.getpid() in {each.pid for each in processes.running()}


def test_a_configuration_that_does_not_hold_is_said(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("link:\n  mode: seven\n")
    found, config = files.configuration(file, {})
    assert (found.level, config) == ("bad", None)
    assert "link.mode" in found.text


def test_what_this_shell_says_of_the_link_wins_as_it_does_for_the_agent(tmp_path: Path) -> None:
    """The demo's line for another terminal sets it, for all commands."""
    file = tmp_path / "agent.yaml"
    file.write_text("link:\n  socket: /x/agent.sock\n")
    found, config = files.configuration(file, {"KVTIDE_SOCKET": "/y/a.sock", "KVTIDE_KEY_FILE": ""})
    assert config is not None
    assert (config.link.socket, config.link.key_path) == (Path("/y/a.sock"), Path("/y/agent.key"))
    assert found.text == f"{file}; KVTIDE_SOCKET=/y/a.sock"
    assert files.configuration(file, {"KVTIDE_SOCKET": "y"})[0].level == "bad"


def test_without_an_agent_no_engine_is_told_to_restart(python: str) -> None:
    installed(python)
    (found,) = processes.findings([serving(7, python)], None)
    assert (found.level, found.mend) == ("note", "start the agent")
    (other,) = processes.findings([serving(7, python, environ={"VLLM_PLUGINS": "other"})], None)
    assert other.level == "bad", "what is wrong with it is said all the same"


def test_a_socket_and_its_key(tmp_path: Path) -> None:
    path, key = tmp_path / "agent.sock", tmp_path / "link.key"
    assert [each.level for each in files.link(path, key)] == ["bad"]
    path.write_text("")
    assert "is no socket" in next(files.link(path, key)).text
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(path))
        assert [each.level for each in files.link(path, key)] == ["ok", "bad"]
        key.touch(0o600)
        assert [each.level for each in files.link(path, key)] == ["ok", "ok"]
        key.chmod(0o644)
        assert [each.mend for each in files.link(path, key)] == ["", f"chmod o= {key}"]


def test_an_agent_that_listens_elsewhere_is_not_said_to_be_down(tmp_path: Path) -> None:
    path, key = tmp_path / "agent.sock", tmp_path / "link.key"
    (found,) = files.link(path, key, "/else/agent.sock")
    assert (found.check, found.level) == ("socket", "warn")
    assert found.text == f"the agent listens at /else/agent.sock, not at {path}"
    assert "is the agent running" in next(files.link(path, key, str(path))).mend


@contextmanager
def answering(answers: Mapping[str, Any]) -> Iterator[str]:
    """A server that answers as Prometheus' API does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = answers.get(self.path.partition("?")[0])
            self.send_response(200 if data is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"status": "success", "data": data}).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def target(health: str = "up", interval: str = "15s", port: int = 9477) -> dict[str, str]:
    return {
        "scrapeUrl": f"http://n:{port}/metrics",
        "health": health,
        "lastError": "refused",
        "scrapeInterval": interval,
    }


RULES = {"groups": [{"rules": [{"labels": {"condition": "kv_orphan"}}, {"labels": {}}]}]}


@pytest.mark.parametrize(
    ("targets", "rules", "levels"),
    [
        ([target()], RULES, ["ok", "ok"]),
        ([target(port=9100)], RULES, ["bad", "ok"]),
        ([target(health="down")], RULES, ["bad", "ok"]),
        ([target(interval="2m")], RULES, ["warn", "ok"]),
        ([target()], {"groups": []}, ["ok", "warn"]),
    ],
)
def test_a_prometheus_says_whether_it_scrapes_and_pages(
    targets: list[dict[str, str]], rules: dict[str, Any], levels: list[str]
) -> None:
    with answering({"/api/v1/targets": {"activeTargets": targets}, "/api/v1/rules": rules}) as url:
        assert [each.level for each in prometheus.findings(url, "http://127.0.0.1:9477")] == levels


def test_what_is_no_prometheus_is_one_finding() -> None:
    with answering({}) as url:
        assert [each.level for each in prometheus.findings(url, "http://127.0.0.1:9477")] == ["bad"]
    assert [each.level for each in prometheus.findings("http://127.0.0.1:1", "http://127.0.0.1:9477")] == ["bad"]


def test_the_command_ends_with_1_where_no_agent_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(f"link:\n  socket: {tmp_path}/agent.sock\n")
    assert run(["doctor", "--url", "http://127.0.0.1:1", "--config", str(file), "--json"]) == 1
    levels = {each["check"]: each["level"] for each in json.loads(capsys.readouterr().out)}
    assert levels["configuration"] == "ok"
    assert levels["socket"] == levels["agent"] == "bad"


def test_a_server_that_runs_here_is_found() -> None:
    """A process that is named as vLLM's are: its own Python is looked at."""
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, "-m", "vllm.entrypoints.openai.api_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        told = {each.check for each in processes.findings(processes.running(), frozenset())}
        process.communicate("")
    assert f"vLLM, pid {process.pid}" in told
