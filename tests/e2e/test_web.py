"""The agent's port with TLS and users, as people meet it: a browser, the commands, and a certificate that changes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest

from tests.bed.agent import KVTIDE, AgentProcess
from tests.unit.security.certificates import self_signed

HASH = bcrypt.hashpw(b"geheim", bcrypt.gensalt(8)).decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("web")
    self_signed(path)
    (path / "web.yaml").write_text(
        f"tls_server_config: {{cert_file: server.pem, key_file: server.key}}\nbasic_auth_users: {{prom: {HASH}}}\n"
    )
    (path / "agent.yaml").write_text(f"http: {{web_config_file: {path}/web.yaml}}\n")
    (path / "credentials").write_text("prom:geheim\n")
    return path


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[AgentProcess]:
    with AgentProcess(folder / "agent", args=["--config", str(folder / "agent.yaml")]) as process:
        yield process


def kvtide(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KVTIDE_")} | variables
    command = [KVTIDE, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=180, env=environment)


def test_the_commands_reach_it_with_what_the_environment_says(agent: AgentProcess, folder: Path) -> None:
    assert agent.url.startswith("https://")
    known = {"KVTIDE_CA_FILE": f"{folder}/server.pem", "KVTIDE_CREDENTIALS_FILE": f"{folder}/credentials"}
    for command in (["status"], ["status", "--json"], ["top", "--once"], ["record", "--out", f"{folder}/a.kvtide"]):
        ended = kvtide(*command, "--url", agent.url, **known)
        assert (ended.returncode, ended.stderr) == (0, ""), command
    doctor = kvtide("doctor", "--json", "--url", agent.url, **known)
    assert "is this host alone, and asks who it is" in doctor.stdout


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, "KVTIDE_CA_FILE names the certificates that are believed"),
        ({"KVTIDE_CA_FILE": "FOLDER/server.pem"}, "it wants to know who asks"),
        ({"KVTIDE_CA_FILE": "FOLDER/server.pem", "KVTIDE_CREDENTIALS": "prom:no"}, "or another password"),
        ({"KVTIDE_CREDENTIALS_FILE": "FOLDER/gone"}, "KVTIDE_CREDENTIALS_FILE: FOLDER/gone: No such file"),
        ({"KVTIDE_CREDENTIALS": "prom"}, "KVTIDE_CREDENTIALS: must be one line, USER:PASSWORD"),
    ],
)
def test_who_is_not_known_is_told_why(agent: AgentProcess, folder: Path, variables: dict[str, str], says: str) -> None:
    told = {key: value.replace("FOLDER", str(folder)) for key, value in variables.items()}
    ended = kvtide("status", "--url", agent.url, **told)
    assert ended.returncode in (1, 2)
    assert says.replace("FOLDER", str(folder)) in ended.stderr
    assert "prom:no" not in ended.stderr


def test_a_password_goes_neither_over_a_command_line_nor_in_clear(agent: AgentProcess) -> None:
    ended = kvtide("status", "--url", agent.url.replace("//", "//prom:geheim@"))
    assert ended.returncode == 2
    assert "a password on a command line is read by all" in ended.stderr
    assert "geheim" not in ended.stderr
    ended = kvtide("status", "--url", "http://gpu-7:9477", KVTIDE_CREDENTIALS="prom:geheim")
    assert ended.returncode == 2
    assert "over https only" in ended.stderr


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium here")
def test_a_browser_shows_the_page_to_who_is_known(agent: AgentProcess, folder: Path) -> None:
    def page(who: str) -> str:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", "--dump-dom"]
        url = agent.url.replace("//", f"//{who}") + "/"
        command = ["chromium", *options, f"--user-data-dir={folder}/browser", url]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300).stdout

    assert "No engine is connected" in page("prom:geheim@")
    assert "No engine is connected" not in page("")


def test_a_start_with_a_wrong_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text("basic_auth_users: {bob: hunter2}\n")
    (tmp_path / "agent.yaml").write_text(f"http: {{web_config_file: {tmp_path}/web.yaml}}\n")
    ended = kvtide("agent", "--config", f"{tmp_path}/agent.yaml", "--socket", f"{tmp_path}/s")
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"kvtide: {tmp_path}/web.yaml: basic_auth_users.bob: (not shown)")
    assert len(ended.stderr.splitlines()) == 1


def test_an_open_port_without_either_is_warned_of(tmp_path: Path) -> None:
    with AgentProcess(tmp_path, args=["--listen", "0.0.0.0:0"]) as process:
        assert "is not this host alone, and whoever reaches it can read all" in process.log.read_text()
        doctor = kvtide("doctor", "--url", process.url.replace("0.0.0.0", "127.0.0.1"))
        assert "whoever reaches it can read all that the agent knows" in " ".join(doctor.stdout.split())
        process.signal(signal.SIGTERM)
