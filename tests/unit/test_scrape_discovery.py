"""Servers are found by their processes: real processes on loopback, and the source as a whole over them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from agent.sources.config import ScrapeConfig
from agent.sources.scrape.discovery import Discovery, Server
from agent.sources.scrape.serving import serving_of
from agent.sources.scrape.source import ScrapeSource
from tests.bed.net import free_port
from tests.bed.pages import page
from tests.unit.support import eventually
from tests.unit.test_scrape_source import engines


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m", ("vllm", "m", None, None, False, True)),
        ("/usr/bin/python3 /usr/local/bin/vllm serve org/m --port 9000", ("vllm", "org/m", None, 9000, False, True)),
        ("python3.12 -u -X dev /bin/vllm serve --model m --port=9", ("vllm", "m", None, 9, False, True)),
        (
            "python -m vllm.entrypoints.openai.api_server --model m --served-model-name n --host 0.0.0.0",
            ("vllm", "n", "0.0.0.0", None, False, True),
        ),
        ("python -m vllm serve m --ssl-certfile c.pem", ("vllm", "m", None, None, True, True)),
        ("python a/vllm/entrypoints/openai/api_server.py --model m", ("vllm", "m", None, None, False, True)),
        ("vllm serve m --headless", ("vllm", "m", None, None, False, False)),
        ("vllm serve m --uds /run/x", ("vllm", "m", None, None, False, False)),
        ("vllm serve m --port x", ("vllm", "m", None, None, False, True)),
        ("python -m sglang.launch_server --model-path m --port 30001", ("sglang", "m", None, 30001, False, True)),
        ("sglang serve --model_path m", ("sglang", "m", None, None, False, True)),
        ("vllm bench serve", None),
        ("vim vllm serve", None),
        ("tini -- vllm serve m", None),
        ("python -c pass vllm serve", None),
        ("python -m vllm.entrypoints.openai.run_batch", None),
        ("python", None),
        ("python -m", None),
        ("", None),
    ],
)
def test_servers_are_known_by_their_command_lines(command: str, expected: tuple[object, ...] | None) -> None:
    assert serving_of(command.split()) == expected


SERVER = """
import os, socket, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
page = open(sys.argv[-1]).read().encode()
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(page)
    def log_message(self, *_):
        pass
server = HTTPServer(("127.0.0.1", int(os.environ["TEST_PORT"])), Handler, bind_and_activate=False)
server.server_bind()
print("bound", flush=True)
sys.stdin.readline()
server.server_activate()
if os.environ.get("TEST_FORK") and os.fork() == 0:
    sys.stdin.read()
    sys.exit()
print("listening", flush=True)
server.serve_forever()
"""


class Process:
    """A process with the command line of ``vllm serve`` that serves a page once it is told to listen."""

    def __init__(self, folder: Path, *arguments: str, port: int, **environment: str) -> None:
        script, text = folder / "vllm", folder / "page"
        script.write_text(SERVER)
        text.write_text(page())
        self.process = subprocess.Popen(
            [sys.executable, str(script), "serve", "org/model", *arguments, str(text)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TEST_PORT": str(port), **environment},
        )
        self.said("bound")

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def listen(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.said("listening")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def begin(*arguments: str, **options: object) -> Process:
        started.append(Process(tmp_path, *arguments, **options))
        return started[-1]

    yield begin
    for process in started:
        process.end()


def found_by(discovery: Discovery, *processes: Process) -> list[Server]:
    """Those of this test: others may run on this machine."""
    pids = {process.pid for process in processes}
    family = pids | {child.pid for pid in pids for child in psutil.Process(pid).children()}
    return [server for server in discovery.look()[0] if server.pid in family]


def test_a_server_is_found_once_it_listens(run: Callable[..., Process]) -> None:
    port = free_port()
    process = run("--port", str(port), port=port)
    discovery = Discovery(set)
    assert found_by(discovery, process) == []
    process.listen()
    (server,) = found_by(discovery, process)
    assert (server.pid, server.url, server.kind, server.model) == (
        process.pid,
        f"http://127.0.0.1:{port}",
        "vllm",
        "org/model",
    )
    assert found_by(discovery, process) == [server]


def test_a_port_that_only_a_file_of_settings_names_is_found(run: Callable[..., Process]) -> None:
    port = free_port()
    process = run(port=port)
    process.listen()
    (server,) = found_by(Discovery(set), process)
    assert server.url == f"http://127.0.0.1:{port}"


def test_a_fork_is_no_second_server(run: Callable[..., Process]) -> None:
    port = free_port()
    process = run("--port", str(port), port=port, TEST_FORK="1")
    process.listen()
    assert psutil.Process(process.pid).children()
    (server,) = found_by(Discovery(set), process)
    assert server.pid == process.pid


def test_one_whose_hooks_report_is_passed_over(run: Callable[..., Process]) -> None:
    port = free_port()
    process = run("--port", str(port), port=port, TEST_FORK="1")
    process.listen()
    (child,) = psutil.Process(process.pid).children()
    hooked: set[int] = set()
    discovery = Discovery(lambda: hooked)
    assert found_by(discovery, process)
    for pid in (process.pid, child.pid):
        hooked = {pid}
        servers, passed = discovery.look()
        assert process.pid not in {server.pid for server in servers}
        assert [each.reason for each in passed if each.pid == process.pid] == ["its hooks report"]
    hooked = set()
    assert found_by(discovery, process)


def test_a_shell_that_becomes_a_server_is_found(run: Callable[..., Process], tmp_path: Path) -> None:
    port = free_port()
    discovery = Discovery(set)
    waiting = subprocess.Popen(
        ["sh", "-c", f"read x; exec {sys.executable} {tmp_path}/vllm serve m --port {port} page"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TEST_PORT": str(port)},
    )
    try:
        (tmp_path / "vllm").write_text(SERVER)
        (tmp_path / "page").write_text(page())
        discovery.look()
        assert waiting.stdin is not None
        assert waiting.stdout is not None
        waiting.stdin.write("\n\n")
        waiting.stdin.flush()
        assert [waiting.stdout.readline(), waiting.stdout.readline()] == ["bound\n", "listening\n"]
        found = [any(server.pid == waiting.pid for server in discovery.look()[0]) for _ in range(8)]
        assert True in found
    finally:
        waiting.kill()
        waiting.communicate()


def test_a_server_that_is_found_is_scraped_until_it_ends(run: Callable[..., Process]) -> None:
    port = free_port()
    process = run("--port", str(port), port=port)
    process.listen()
    clock = Clock()
    source = ScrapeSource(ScrapeConfig(discover=True, period_seconds=0.5), hooked=all_but(process.pid), clock=clock)
    try:
        assert source.read().engines == (), "engines with hooks are not connected yet"
        clock.ahead += 5
        eventually(lambda: [each.phase for each in source.read().engines] == ["up"])
        (found,) = source.read().engines
        assert (found.engine, found.found, found.pid, found.usage_ratio) == ("org/model", "process", process.pid, 0.25)
        process.end()
        eventually(lambda: source.read().engines[0].phase == "down")
        clock.ahead += 11
        assert source.read().engines == ()
    finally:
        source.close()


def test_a_server_that_the_settings_name_is_not_scraped_twice(run: Callable[..., Process]) -> None:
    port = free_port()
    process = run("--port", str(port), port=port)
    process.listen()
    config = ScrapeConfig(
        engines=[{"url": f"http://127.0.0.1:{port}/", "name": "a"}], discover=True, period_seconds=0.5
    )
    clock = Clock()
    source = ScrapeSource(config, hooked=all_but(process.pid), clock=clock)
    try:
        eventually(lambda: engines(source.read()) == {"a": "up"})
        clock.ahead += 5
        assert engines(source.read()) == {"a": "up"}
    finally:
        source.close()


def all_but(pid: int) -> Callable[[], set[int]]:
    """Nothing else on this machine is this test's to scrape."""
    return lambda: set(psutil.pids()) - {pid}


class Clock:
    """Real seconds, and what the test adds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead
