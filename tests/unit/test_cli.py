"""The command line as a user runs it: exit codes, one line for an error, and a daemon that starts and ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest

from agent.state import AgentState
from engine_hooks import __version__
from tests.unit.stub_server import Answer, StubServer
from tests.unit.support import PATIENCE

KVTIDE = Path(sys.executable).parent / "kvtide"
SECONDS = 60.0  # more than any command takes on a busy machine


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(KVTIDE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def refused(code: int, *arguments: object) -> str:
    """Run a command that must fail with one line and nothing else."""
    result = run(*arguments)
    assert result.returncode == code
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("kvtide: ")
    return line.removeprefix("kvtide: ")


@pytest.fixture
def config_file(tmp_path: Path, socket_path: Path, key_file: Path) -> Path:
    path = tmp_path / "agent.yaml"
    path.write_text(
        f"link: {{socket: {socket_path}, key_file: {key_file}}}\nhttp: {{listen: '127.0.0.1:0'}}\n"
        f"recorder: {{directory: {tmp_path / 'kept'}}}\n"
    )
    return path


@pytest.fixture
def daemon(config_file: Path) -> Iterator[subprocess.Popen[str]]:
    command = [str(KVTIDE), "agent", "--config", str(config_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_version() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"kvtide {__version__}\n", "")


def test_help_names_every_command() -> None:
    result = run("--help")
    assert (result.returncode, result.stderr) == (0, "")
    for command in ("agent", "status", "version"):
        assert command in result.stdout


@pytest.mark.parametrize("arguments", [("nonsense",), ("status", "--nope"), ("status", "--watch", "soon"), ()])
def test_wrong_use_is_told_without_a_traceback(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert "Usage: kvtide" in result.stderr + result.stdout
    assert "Traceback" not in result.stderr


def test_a_port_in_use(config_file: Path, socket_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        line = refused(1, "agent", "--config", config_file, "--listen", f"127.0.0.1:{port}")
    assert line.startswith(f"http.listen: 127.0.0.1:{port}: the port is in use; choose another by --listen HOST:PORT")
    assert not socket_path.exists()


def test_a_socket_path_that_is_too_long(config_file: Path) -> None:
    long = "/" + "a" * 107
    line = refused(2, "agent", "--config", config_file, "--socket", long)
    told = f"{long!r}: the path has 108 bytes, 107 are allowed; choose a shorter one"
    assert line == f"command line or environment: link.socket: {told}"


def test_an_unknown_key(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("htpp: {}\n")
    keys = "link, http, sources, recorder, balancer, supervisor, policy, gone_after_periods"
    assert refused(2, "agent", "--config", path) == f"{path}: unknown key htpp; allowed here: {keys}"


def test_a_policy_that_is_none(config_file: Path) -> None:
    line = refused(2, "agent", "--config", config_file, "--policy", "of mine")
    profiles = "default, latency, throughput, textbook"
    assert line == f"policy 'of mine': there is no such file, and no such profile ({profiles})"


def test_status_without_an_agent() -> None:
    with socket.socket() as unused:  # bound, and nobody listens
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        line = refused(1, "status", "--url", url)
    assert line.startswith(f"no agent answers at {url} (")
    assert line.endswith("; start it with: kvtide agent")


def test_status_of_a_host_that_does_not_exist() -> None:
    line = refused(1, "status", "--url", "http://kvtide.invalid:9477")
    assert line.startswith("no agent answers at http://kvtide.invalid:9477: that host is not known here (")


def test_status_over_tls_of_what_speaks_none() -> None:
    with StubServer(lambda _: Answer({})) as server:
        url = server.url.replace("http://", "https://")
        line = refused(1, "status", "--url", url)
    assert line == f"{url}: what answers there speaks no TLS; is it http:// and not https://?"


def test_status_in_clear_of_what_speaks_tls_alone() -> None:
    """A server of TLS hears no handshake, and closes without a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        listener.settimeout(SECONDS)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def close() -> None:
            taken, _ = listener.accept()
            with taken:
                taken.recv(65536)

        thread = threading.Thread(target=close)
        thread.start()
        line = refused(1, "status", "--url", url)
        thread.join()
    assert line == f"{url}: what answers there ends without an answer; does it speak TLS (https://)?"


def test_status_of_something_that_is_no_url() -> None:
    assert refused(2, "status", "--url", "ftp://nonsense").startswith(
        "--url: 'ftp://nonsense': neither http nor https;"
    )


def test_the_agent_starts_serves_and_ends(daemon: subprocess.Popen[str], socket_path: Path, config_file: Path) -> None:
    assert daemon.stdout is not None
    line = daemon.stdout.readline()
    start = f"kvtide agent: engines connect to {socket_path}; look at http://127.0.0.1:"
    assert line.startswith(start)
    url = "http://127.0.0.1:" + line.removeprefix(start).strip()
    assert socket_path.is_socket()
    with httpx2.Client(base_url=url, timeout=PATIENCE) as http:
        assert http.get("/-/ready").text == "ready\n"
        assert "kvtide_agent_ready 1.0\n" in http.get("/metrics").text
        assert http.get("/").status_code == 200
        state = msgspec.json.decode(http.get("/api/v1/state").content, type=AgentState)
    assert (state.version, state.ready, state.engines, state.link.socket) == (__version__, True, (), str(socket_path))

    status = run("status", "--url", url)
    assert (status.returncode, status.stderr) == (0, "")
    assert f"No engine is connected at {socket_path}." in " ".join(status.stdout.split())
    as_json = run("status", "--url", url.removeprefix("http://"), "--json")
    assert as_json.stdout.startswith('{\n  "at": ')
    assert msgspec.json.decode(as_json.stdout, type=AgentState).link.socket == str(socket_path)

    second = refused(1, "agent", "--config", config_file)
    assert second.startswith(f"link.socket: {socket_path}: pid {daemon.pid} (uid {os.geteuid()}) listens there already")

    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(SECONDS) == 0
    assert not socket_path.exists()
    assert daemon.stderr is not None
    assert "Traceback" not in daemon.stderr.read()


def test_a_reload_that_is_asked_for_while_it_starts_does_not_end_it(daemon: subprocess.Popen[str]) -> None:
    bit = 1 << (signal.SIGHUP - 1)
    deadline = time.monotonic() + SECONDS
    while not (ignored := _ignored(daemon.pid) & bit) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert ignored
    daemon.send_signal(signal.SIGHUP)
    assert daemon.stdout is not None
    assert daemon.stdout.readline().startswith("kvtide agent: engines connect to ")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(SECONDS) == 0


def _ignored(pid: int) -> int:
    """Return the signals that a process ignores, as a mask."""
    (mask,) = re.findall(r"^SigIgn:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(mask, 16)


def test_an_interrupt_ends_it_too(daemon: subprocess.Popen[str], socket_path: Path) -> None:
    assert daemon.stdout is not None
    assert daemon.stdout.readline()
    daemon.send_signal(signal.SIGINT)
    assert daemon.wait(SECONDS) == 0
    assert not socket_path.exists()
